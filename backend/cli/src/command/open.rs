//! Opens a session with its inputs from the shared arguments.

use super::args::{DeviceArgs, ModelArgs, PlaceArgs};
use super::costs::{StoreFile, open_store};
use super::hints::{is_absence, notes};
use super::inputs::{Located, read_inputs};
use super::progress::waiting;
use super::{CliError, Output, note, version, wrote};
use anabranch::compiled::{Cache, CacheOutcome, CachedSession};
use anabranch::planning::{PlatformFile, Strategy};
use anabranch::session::{Inputs, Session, SessionConfig};
use std::path::PathBuf;

/// Model that runs if none is named: a residual network of 3×32×32 images, with random weights.
pub(super) const BUILT_IN: &[u8] = include_bytes!("../../models/convnet.onnx");

/// Session and inputs from the command line.
pub(super) struct Opened {
    pub(super) session: Session,
    pub(super) inputs: Inputs,
    pub(super) store: StoreFile,
    /// Folders of tensors next to the model. The inputs are those of the first.
    pub(super) sets: Vec<PathBuf>,
}

impl Opened {
    /// Writes the learned costs to the cost store.
    pub(super) fn save_costs(&self) -> Result<(), CliError> {
        self.store.save_costs(&self.session)
    }
}

/// Opens the model and reads the inputs.
///
/// Missing inputs are random if the command line says so or names no input at all. If there is a platform file, plans
/// are for its devices. If costs will be saved, checks first that this is possible.
pub(super) fn open(
    devices: &DeviceArgs,
    platform: Option<PlatformFile>,
    model: &ModelArgs,
    place: &PlaceArgs,
    will_save: bool,
) -> Result<Opened, CliError> {
    let Some(folder) = model.cache() else {
        let (session, store, sets) = open_session(devices, platform, model, place, will_save)?;
        let inputs = inputs_of(model, &sets, &session)?;
        return Ok(Opened { session, inputs, store, sets });
    };
    let (config, store) = config(devices, platform, model, place, will_save)?;
    let Some(Located { file, sets }) = located(model)? else {
        return Err(CliError::input("--cache keeps models of files, and the built-in model has no file; name a model"));
    };
    let (cache, build) = (Cache::new(folder), version::short());
    let open = || cache.open(&file, &config, &build, |session| inputs_of(model, &sets, session));
    let CachedSession { session, inputs, outcome, .. } = waiting(Output { json: false }, "opening the model", open)?;
    match outcome {
        CacheOutcome::Found(kept) => note(format_args!("opened from {}", kept.display())),
        CacheOutcome::Made { file, damaged } => {
            damaged.iter().for_each(note);
            wrote(&file);
        }
        CacheOutcome::Refused(why) if model.cache.is_some() => return Err(CliError::input(format!("--cache: {why}"))),
        CacheOutcome::Passed(why) | CacheOutcome::Refused(why) => {
            note(format_args!("{} is not kept: {why}", file.display()))
        }
        _ => {}
    }
    Ok(Opened { session, inputs, store, sets })
}

/// Returns the inputs from the command line, and random inputs if requested.
pub(super) fn inputs_of(model: &ModelArgs, sets: &[PathBuf], session: &Session) -> Result<Inputs, CliError> {
    let given = read_inputs(model, sets.first().map(PathBuf::as_path), session)?;
    let seed = model.random.or((model.input.is_empty() && sets.is_empty()).then_some(0));
    Ok(match seed {
        Some(seed) => session.fill_random(given, seed)?,
        None => given,
    })
}

/// Finds the model that the command line names.
pub(super) fn located(model: &ModelArgs) -> Result<Option<Located>, CliError> {
    model.model.as_deref().map(Located::at).transpose()
}

/// Opens the model, and returns the locations of the cost store and of the folders of tensors next to the model.
pub(super) fn open_session(
    devices: &DeviceArgs,
    platform: Option<PlatformFile>,
    model: &ModelArgs,
    place: &PlaceArgs,
    will_save: bool,
) -> Result<(Session, StoreFile, Vec<PathBuf>), CliError> {
    let (config, store) = config(devices, platform, model, place, will_save)?;
    let located = located(model)?;
    let opened = || match &located {
        Some(located) => Session::open(&located.file, config),
        None => Session::from_bytes(BUILT_IN, config),
    };
    let session = waiting(Output { json: false }, "opening the model", opened)?;
    Ok((session, store, located.map_or_else(Vec::new, |located| located.sets)))
}

/// The configuration of a session that the command line states, and the location of its cost store.
pub(super) fn config(
    devices: &DeviceArgs,
    platform: Option<PlatformFile>,
    model: &ModelArgs,
    place: &PlaceArgs,
    will_save: bool,
) -> Result<(SessionConfig, StoreFile), CliError> {
    let (store, costs) = open_store(place.constraints.costs.as_ref())?;
    if will_save && place.constraints.costs.is_some() {
        store.ready()?;
    }
    let mut config = devices.config()?.or(model.config()?).or(place.config()?);
    config = config.with_costs(costs).with_calibration(true);
    config.platform = platform;
    Ok((config, store))
}

pub(super) fn strategy(place: &str) -> Strategy {
    let Ok(strategy) = place.parse();
    strategy
}

pub(super) fn model_name(model: &ModelArgs) -> String {
    model.model.as_ref().map_or_else(|| "the built-in model".to_owned(), |path| path.display().to_string())
}

/// Prints the inventory's notes, unless JSON is wanted. Notes on missing GPUs are left out.
pub(super) fn print_notes(session: &Session, output: Output) {
    if !output.json {
        notes(session.inventory()).iter().filter(|note| !is_absence(note)).for_each(note);
    }
}

/// Prints the inventory's notes, also on missing GPUs, for commands that use a GPU if there is one.
pub(super) fn print_all_notes(session: &Session, output: Output) {
    if !output.json {
        notes(session.inventory()).iter().for_each(note);
    }
}
