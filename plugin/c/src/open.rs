//! C functions that open and close sessions, and describe the inputs and outputs of their models.

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

/// Open sessions of callers.
pub(crate) static SESSIONS: Handles<anabranch_session, Open> = Handles::new("session");

/// A session, with the declarations that its callers can read.
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

/// Opens the ONNX model in a file. On success `session` is a handle, which anabranch_session_free() closes; on failure
/// it is null.
///
/// `options` is a JSON object, such as `{"place": "auto", "threads": 2}`, or null for no options. docs/c.md lists
/// the options, and so does the error of an unknown option.
///
/// Any thread, at any time. Takes as long as reading the model and looking for devices.
///
/// # Safety
/// `path` and `options` must be strings that end with a zero byte, or null. `session` must point to a writable pointer,
/// or be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_open(
    path: *const c_char,
    options: *const c_char,
    session: *mut *mut anabranch_session,
) -> anabranch_status {
    // SAFETY: by this function's contract.
    guarded(|| unsafe {
        opened(options, session, |options| Ok(Session::open(text::path(path)?, options.session.clone())?))
    })
}

/// Opens the ONNX model in `size` bytes, which must not refer to other files, and may be freed afterwards. Otherwise as
/// anabranch_open().
///
/// Any thread, at any time.
///
/// # Safety
/// `bytes` must point to `size` bytes, or be null; otherwise as `anabranch_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_open_bytes(
    bytes: *const c_void,
    size: usize,
    options: *const c_char,
    session: *mut *mut anabranch_session,
) -> anabranch_status {
    // SAFETY: by this function's contract.
    guarded(|| unsafe {
        opened(options, session, |options| {
            if bytes.is_null() || isize::try_from(size).is_err() {
                return Err(Failure::argument(format_args!("the model is null, but its size is {size} bytes")));
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
    // SAFETY: by this function's contract.
    unsafe {
        let session = placed(session, ptr::null_mut())?;
        let options = if options.is_null() { Options::default() } else { Options::of(given(options, "the options")?)? };
        let opened = open(&options)?;
        only_tensors(&opened)?;
        *session = SESSIONS.open(Open::new(opened, &options));
    }
    Ok(())
}

/// Rejects a model with sequences or optionals as inputs or outputs.
fn only_tensors(session: &Session) -> Result<()> {
    match session.inputs().iter().chain(session.outputs()).find(|value| !value.kind().is_tensor()) {
        None => Ok(()),
        Some(value) => {
            let text = format!(
                "`{value}` is not a tensor, but the C interface supports only tensors; use the command or Python"
            );
            Err(Failure::new(anabranch_status::Unsupported, text))
        }
    }
}

/// Initialises a caller's output parameter, and returns a reference to it.
///
/// # Safety
/// `place` must be null, or point to memory for a `T` that is not used otherwise while it is written.
pub(crate) unsafe fn placed<'a, T>(place: *mut T, initial: T) -> Result<&'a mut T> {
    if place.is_null() || !place.is_aligned() {
        return Err(Failure::argument("the out-parameter is null, or not aligned"));
    }
    // SAFETY: by this function's contract; the old value is not read.
    unsafe {
        place.write(initial);
        Ok(&mut *place)
    }
}

/// Writes a value to a caller's output parameter.
///
/// # Safety
/// As [`placed`].
pub(crate) unsafe fn tell<T>(place: *mut T, value: T) -> Result<()> {
    // SAFETY: by this function's contract.
    unsafe { placed(place, value)? };
    Ok(())
}

/// Closes a session. Does nothing if it is null. Running calls complete as if it were open. Declarations from
/// anabranch_input() and anabranch_output() become invalid. Results of its runs stay.
///
/// Any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_session_free(session: *mut anabranch_session) -> anabranch_status {
    guarded(|| SESSIONS.close(session))
}

/// Returns the number of the model's inputs.
///
/// Any thread, at any time.
///
/// # Safety
/// `count` must point to a writable number, or be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_input_count(
    session: *const anabranch_session,
    count: *mut usize,
) -> anabranch_status {
    // SAFETY: by this function's contract.
    guarded(|| unsafe { tell(count, SESSIONS.get(session)?.inputs.len()) })
}

/// Returns the declaration of an input, by its index from 0.
///
/// Any thread, at any time.
///
/// # Safety
/// `value` must point to a writable anabranch_value, or be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_input(
    session: *const anabranch_session,
    index: usize,
    value: *mut anabranch_value,
) -> anabranch_status {
    // SAFETY: by this function's contract.
    guarded(|| unsafe { declared(&SESSIONS.get(session)?.inputs, "input", index, value) })
}

/// Returns the number of the model's outputs.
///
/// Any thread, at any time.
///
/// # Safety
/// `count` must point to a writable number, or be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_output_count(
    session: *const anabranch_session,
    count: *mut usize,
) -> anabranch_status {
    // SAFETY: by this function's contract.
    guarded(|| unsafe { tell(count, SESSIONS.get(session)?.outputs.len()) })
}

/// Returns the declaration of an output, by its index from 0.
///
/// Any thread, at any time.
///
/// # Safety
/// `value` must point to a writable anabranch_value, or be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anabranch_output(
    session: *const anabranch_session,
    index: usize,
    value: *mut anabranch_value,
) -> anabranch_status {
    // SAFETY: by this function's contract.
    guarded(|| unsafe { declared(&SESSIONS.get(session)?.outputs, "output", index, value) })
}

/// # Safety
/// `value` must point to a writable `anabranch_value`, or be null.
unsafe fn declared(all: &[Declared], what: &str, index: usize, value: *mut anabranch_value) -> Result<()> {
    let missing = || Failure::argument(format_args!("there is no {what} {index}; the model has {}", all.len()));
    let found = all.get(index).ok_or_else(missing)?;
    // SAFETY: by this function's contract.
    unsafe { tell(value, found.told()) }
}
