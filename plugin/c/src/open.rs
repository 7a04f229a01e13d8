//! Opening models, and what they declare.

use super::abi::{anabranch_session, anabranch_status, anabranch_value};
use super::handles::Handles;
use super::options::Options;
use super::status::{Failure, Result, guarded};
use super::tensors::code;
use super::text::{self, c_text, given};
use anabranch::import::Dim;
use anabranch::{Session, ValueInfo};
use std::ffi::{CString, c_char, c_void};
use std::{ptr, slice};

/// The sessions that callers have open.
pub(crate) static SESSIONS: Handles<anabranch_session, Open> = Handles::new("session");

/// A session, and what its callers are told of it.
pub(crate) struct Open {
    pub(crate) session: Session,
    pub(crate) profile: bool,
    inputs: Vec<Declared>,
    outputs: Vec<Declared>,
}

/// An input or output.
struct Declared {
    name: CString,
    description: CString,
    element_type: i32,
    dims: Option<Vec<i64>>,
    is_optional: bool,
}

impl Open {
    fn new(session: Session, options: &Options) -> Self {
        let all = |values: &[ValueInfo]| values.iter().map(Declared::of).collect();
        Self { inputs: all(session.inputs()), outputs: all(session.outputs()), profile: options.profile, session }
    }
}

impl Declared {
    fn of(value: &ValueInfo) -> Self {
        let dim = |dim: &Dim| if let Dim::Known(size) = dim { i64::try_from(*size).unwrap_or(-1) } else { -1 };
        Self {
            name: c_text(value.name()),
            description: c_text(&value.to_string()),
            element_type: value.dtype().map_or(0, code),
            dims: value.dims().map(|dims| dims.iter().map(dim).collect()),
            is_optional: value.is_optional(),
        }
    }

    fn told(&self) -> anabranch_value {
        let rank = self.dims.as_ref().map(|dims| i32::try_from(dims.len()).unwrap_or(-1));
        anabranch_value {
            name: self.name.as_ptr(),
            description: self.description.as_ptr(),
            element_type: self.element_type,
            rank: rank.unwrap_or(-1),
            dims: self.dims.as_ref().map_or(ptr::null(), |dims| dims.as_ptr()),
            is_optional: self.is_optional.into(),
        }
    }
}

/// Opens the ONNX model in a file. `options` is a JSON object, or null for none: `{"strategy": "auto", "threads": 2}`; docs/c.md lists them, and
/// so does the error of one that is not known. On success `session` is a handle, which anabranch_session_free() closes; on failure null.
///
/// Any thread, at any time. Takes as long as reading the model and looking for devices.
///
/// # Safety
/// `path` and `options` must be texts that end with a zero byte, or null, and `session` a place for a pointer, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_open(
    path: *const c_char,
    options: *const c_char,
    session: *mut *mut anabranch_session,
) -> anabranch_status {
    // SAFETY: as this function's.
    guarded(|| unsafe {
        opened(options, session, |options| Ok(Session::open(text::path(path)?, options.session.clone())?))
    })
}

/// Opens the ONNX model in `size` bytes, which must not refer to other files, and may be freed afterwards. All else as anabranch_open().
///
/// Any thread, at any time.
///
/// # Safety
/// At `bytes` there must be `size` bytes, or it must be null; otherwise as `anabranch_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_open_bytes(
    bytes: *const c_void,
    size: usize,
    options: *const c_char,
    session: *mut *mut anabranch_session,
) -> anabranch_status {
    // SAFETY: as this function's.
    guarded(|| unsafe {
        opened(options, session, |options| {
            if bytes.is_null() || isize::try_from(size).is_err() {
                return Err(Failure::argument(format_args!("the model's {size} bytes are not there")));
            }
            let bytes = slice::from_raw_parts(bytes.cast(), size);
            Ok(Session::from_bytes(bytes, options.session.clone())?)
        })
    })
}

/// # Safety
/// As `anabranch_open`.
unsafe fn opened(
    options: *const c_char,
    session: *mut *mut anabranch_session,
    open: impl FnOnce(&Options) -> Result<Session>,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe {
        let session = placed(session, ptr::null_mut())?;
        let options = if options.is_null() { Options::default() } else { Options::of(given(options, "the options")?)? };
        let opened = open(&options)?;
        only_tensors(&opened)?;
        *session = SESSIONS.open(Open::new(opened, &options));
    }
    Ok(())
}

/// Refuses a model with sequences or optionals as inputs or outputs.
fn only_tensors(session: &Session) -> Result<()> {
    match session.inputs().iter().chain(session.outputs()).find(|value| !value.kind().is_tensor()) {
        None => Ok(()),
        Some(value) => {
            let text =
                format!("`{value}` is no tensor, and this interface has tensors alone; use the command or Python");
            Err(Failure::new(anabranch_status::Unsupported, text))
        }
    }
}

/// A caller's place for something, which is there for now.
///
/// # Safety
/// It must be null, or a place for it that nobody else uses as long as it is written.
pub(crate) unsafe fn placed<'a, T>(place: *mut T, initial: T) -> Result<&'a mut T> {
    if place.is_null() || !place.is_aligned() {
        return Err(Failure::argument("the place for the result is null, or not aligned"));
    }
    // SAFETY: as this function's; what was there before is not looked at.
    unsafe {
        place.write(initial);
        Ok(&mut *place)
    }
}

/// Tells a caller something at its place for it.
///
/// # Safety
/// As [`placed`].
pub(crate) unsafe fn tell<T>(place: *mut T, value: T) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { placed(place, value)? };
    Ok(())
}

/// Closes a session; null is none. Runs that are under way end as if it was open; what anabranch_input() and anabranch_output() have told is gone.
/// Results of its runs stay.
///
/// Any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_session_free(session: *mut anabranch_session) -> anabranch_status {
    guarded(|| SESSIONS.close(session))
}

/// How many inputs the model has.
///
/// Any thread, at any time.
///
/// # Safety
/// `count` must be a place for a number, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_input_count(
    session: *const anabranch_session,
    count: *mut usize,
) -> anabranch_status {
    // SAFETY: as this function's.
    guarded(|| unsafe { tell(count, SESSIONS.get(session)?.inputs.len()) })
}

/// What the model declares of an input, by its place from 0 on.
///
/// Any thread, at any time.
///
/// # Safety
/// `value` must be a place for one, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_input(
    session: *const anabranch_session,
    index: usize,
    value: *mut anabranch_value,
) -> anabranch_status {
    // SAFETY: as this function's.
    guarded(|| unsafe { declared(&SESSIONS.get(session)?.inputs, "input", index, value) })
}

/// How many outputs the model has.
///
/// Any thread, at any time.
///
/// # Safety
/// `count` must be a place for a number, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_output_count(
    session: *const anabranch_session,
    count: *mut usize,
) -> anabranch_status {
    // SAFETY: as this function's.
    guarded(|| unsafe { tell(count, SESSIONS.get(session)?.outputs.len()) })
}

/// What the model declares of an output, by its place from 0 on.
///
/// Any thread, at any time.
///
/// # Safety
/// `value` must be a place for one, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_output(
    session: *const anabranch_session,
    index: usize,
    value: *mut anabranch_value,
) -> anabranch_status {
    // SAFETY: as this function's.
    guarded(|| unsafe { declared(&SESSIONS.get(session)?.outputs, "output", index, value) })
}

/// # Safety
/// `value` must be a place for one, or null.
unsafe fn declared(all: &[Declared], what: &str, index: usize, value: *mut anabranch_value) -> Result<()> {
    let missing = || Failure::argument(format_args!("there is no {what} {index}; the model has {}", all.len()));
    let found = all.get(index).ok_or_else(missing)?;
    // SAFETY: as this function's.
    unsafe { tell(value, found.told()) }
}
