//! From the shared arguments to an open session with its inputs.

use super::args::{DeviceArgs, ModelArgs, PlaceArgs};
use super::costs::store_path;
use super::inputs::read_inputs;
use super::{CliError, Output};
use anabranch::profile::CostStore;
use anabranch::session::{Inputs, Place, PlatformFile, Session, SessionOptions, Wishes};
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
        Ok(self.session.costs().save(&self.store)?)
    }
}

/// Opens the model and reads the inputs. What the inputs leave out is random where the command line says so, or where it
/// names no input at all.
pub(super) fn open(devices: &DeviceArgs, model: &ModelArgs, place: &PlaceArgs) -> Result<Opened, CliError> {
    open_for(devices, None, model, place)
}

/// [`open`], to plan for the devices of a platform file.
pub(super) fn open_for(
    devices: &DeviceArgs,
    platform: Option<PlatformFile>,
    model: &ModelArgs,
    place: &PlaceArgs,
) -> Result<Opened, CliError> {
    let store = store_path(place.wishes.costs.as_ref())?;
    let loaded = CostStore::load(&store)?;
    loaded.warnings.iter().for_each(|warning| eprintln!("anabranch: {warning}"));
    let options = SessionOptions {
        devices: devices.options(),
        place: Place::parse(&place.place),
        order: place.order.clone(),
        wishes: Wishes { pins: place.wishes.pin.clone(), colocated: place.wishes.colocate.clone() },
        dims: model.dim.iter().cloned().collect(),
        fuse: !model.no_fuse,
        platform,
        plan: place.streaming.options(),
        costs: loaded.store,
        ..SessionOptions::default()
    };
    let session = match &model.model {
        Some(path) => Session::open(path, options)?,
        None => Session::from_bytes(BUILT_IN, options)?,
    };
    let names: Vec<_> = session.inputs().iter().map(|input| input.name.clone()).collect();
    let given = Inputs::from(read_inputs(model, &names)?);
    let seed = model.random.or(model.input.is_empty().then_some(0));
    let inputs = match seed {
        Some(seed) => session.fill_random(given, seed)?,
        None => given,
    };
    Ok(Opened { session, inputs, store })
}

/// The model's name for people.
pub(super) fn model_name(model: &ModelArgs) -> String {
    model.model.as_ref().map_or_else(|| "the built-in model".to_owned(), |path| path.display().to_string())
}

/// Prints the notes of the inventory to standard error, where text is wanted.
pub(super) fn print_notes(session: &Session, output: Output) {
    if !output.json {
        session.inventory().notes.iter().for_each(|note| eprintln!("note: {note}"));
    }
}
