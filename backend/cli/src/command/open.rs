//! From the shared arguments to an open session with its inputs.

use super::args::{DeviceArgs, ModelArgs, PlaceArgs};
use super::costs::{open_store, ready_store, refused};
use super::hints::notes;
use super::inputs::read_inputs;
use super::{CliError, Output, say};
use anabranch::planning::{Constraints, PlatformFile, Strategy};
use anabranch::session::{Inputs, Session, SessionOptions};
use std::path::PathBuf;

/// The model that runs when none is named: a residual network of 3×32×32 images, with random weights.
const BUILT_IN: &[u8] = include_bytes!("../../models/convnet.onnx");

/// A session that the command line describes, and the inputs that it names.
pub(super) struct Opened {
    pub(super) session: Session,
    pub(super) inputs: Inputs,
    pub(super) store: PathBuf,
}

impl Opened {
    /// Writes what was learned to the cost store.
    pub(super) fn save_costs(&self) -> Result<(), CliError> {
        self.session.save_costs(&self.store).map_err(refused)
    }
}

/// Opens the model and reads the inputs. What the inputs leave out is random where the command line says so, or where it
/// names no input at all. With a platform file, plans are for its devices. Where costs will be saved, it is seen to first that they can.
pub(super) fn open(
    devices: &DeviceArgs,
    platform: Option<PlatformFile>,
    model: &ModelArgs,
    place: &PlaceArgs,
    will_save: bool,
) -> Result<Opened, CliError> {
    let (store, costs) = open_store(place.constraints.costs.as_ref())?;
    if will_save {
        ready_store(&store)?;
    }
    let pins = place.constraints.pin.iter();
    let pinned = pins.fold(Constraints::default(), |all, (pattern, device)| all.with_pin(pattern, device));
    let mut options = SessionOptions::default()
        .with_devices(devices.options())
        .with_strategy(strategy(&place.place))
        .with_order(place.order)
        .with_constraints(place.constraints.colocate.iter().fold(pinned, Constraints::with_colocated))
        .with_fusion(!model.no_fuse)
        .with_plan(place.options())
        .with_costs(costs)
        .with_calibration(true);
    options.dims = model.dim.iter().cloned().collect();
    options.platform = platform;
    let session = match &model.model {
        Some(path) => Session::open(path, options)?,
        None => Session::from_bytes(BUILT_IN, options)?,
    };
    let given = read_inputs(model, &session)?;
    let seed = model.random.or(model.input.is_empty().then_some(0));
    let inputs = match seed {
        Some(seed) => session.fill_random(given, seed)?,
        None => given,
    };
    Ok(Opened { session, inputs, store })
}

pub(super) fn strategy(place: &str) -> Strategy {
    let Ok(strategy) = place.parse();
    strategy
}

pub(super) fn model_name(model: &ModelArgs) -> String {
    model.model.as_ref().map_or_else(|| "the built-in model".to_owned(), |path| path.display().to_string())
}

/// Prints the notes of the inventory to standard error, where text is wanted.
pub(super) fn print_notes(session: &Session, output: Output) {
    if !output.json {
        notes(session.inventory()).iter().for_each(|note| say(format_args!("note: {note}")));
    }
}
