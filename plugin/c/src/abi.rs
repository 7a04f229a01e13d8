//! The types of the header, and what it says of the library as a whole.
#![allow(non_camel_case_types, reason = "the names of the header")]

use std::ffi::{c_char, c_void};

/// The version of this header: it changes when a caller would have to be compiled again.
pub const ANABRANCH_INTERFACE: u32 = 1;

/// The version of the header that the library was built with, to be compared with ANABRANCH_INTERFACE.
///
/// Any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_interface() -> u32 {
    ANABRANCH_INTERFACE
}

/// The library's version, such as "0.1.0". The text is never freed.
///
/// Any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// How a call ended. anabranch_last_error() has the text. Further numbers may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum anabranch_status {
    /// Everything was done.
    Ok = 0,
    /// The call is wrong: a null pointer, a handle that is not open, sizes that contradict each other, no such output.
    Argument = 1,
    /// An option is not known, has no such value, or names a strategy or a file that is not there.
    Option = 2,
    /// The file cannot be read, or is no sound ONNX model.
    Model = 3,
    /// The model uses operators that there is no kernel for.
    Unsupported = 4,
    /// An input is missing, or not what the model declares.
    Input = 5,
    /// A device is not there, cannot be used, or was lost.
    Device = 6,
    /// What is needed does not fit a device's memory, or there is none left.
    Memory = 7,
    /// There is no plan within the constraints, for another reason than memory.
    Infeasible = 8,
    /// The run was cancelled.
    Cancelled = 9,
    /// The run took longer than it was given.
    Timeout = 10,
    /// The text is longer than the room for it; the call told how much it takes.
    Room = 11,
    /// A fault of Anabranch. Please report it.
    Internal = 12,
}

/// Element types, numbered as in ONNX files.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub enum anabranch_type {
    /// Not declared.
    Unknown = 0,
    /// IEEE 754 binary32.
    F32 = 1,
    /// 8-bit unsigned integer.
    U8 = 2,
    /// 8-bit signed integer.
    I8 = 3,
    /// 16-bit unsigned integer.
    U16 = 4,
    /// 16-bit signed integer.
    I16 = 5,
    /// 32-bit signed integer.
    I32 = 6,
    /// 64-bit signed integer.
    I64 = 7,
    /// One byte, 0 or 1.
    Bool = 9,
    /// IEEE 754 binary16.
    F16 = 10,
    /// IEEE 754 binary64.
    F64 = 11,
    /// 32-bit unsigned integer.
    U32 = 12,
    /// 64-bit unsigned integer.
    U64 = 13,
    /// The upper half of a binary32.
    Bf16 = 16,
    /// 8-bit float of 4 exponent and 3 mantissa bits, without infinities.
    F8E4m3fn = 17,
    /// The same with another bias, and NaN in the place of negative zero.
    F8E4m3fnuz = 18,
    /// 8-bit float of 5 exponent and 2 mantissa bits.
    F8E5m2 = 19,
    /// The same with another bias, NaN in the place of negative zero, and no infinities.
    F8E5m2fnuz = 20,
    /// 4-bit unsigned integer, in a byte.
    U4 = 21,
    /// 4-bit signed integer, in a byte.
    I4 = 22,
    /// 4-bit float of 2 exponent bits and 1 mantissa bit, in a byte.
    F4E2m1 = 23,
    /// 2-bit unsigned integer, in a byte.
    U2 = 25,
    /// 2-bit signed integer, in a byte.
    I2 = 26,
}

/// A model that is open.
pub struct anabranch_session {
    _opaque: (),
}

/// What a run has made.
pub struct anabranch_result {
    _opaque: (),
}

/// Asks runs to stop, from any thread.
pub struct anabranch_cancel {
    _opaque: (),
}

/// An input or output as the model declares it. The pointers are valid until the session is freed.
#[repr(C)]
#[derive(Debug)]
pub struct anabranch_value {
    /// Its name, in UTF-8.
    pub name: *const c_char,
    /// For people, in UTF-8: `x: f32[batch×3×224×224]`, where `batch` is a symbol and `?` what is not declared.
    pub description: *const c_char,
    /// One of anabranch_type; ANABRANCH_TYPE_UNKNOWN for an output whose type is not declared.
    pub element_type: i32,
    /// The number of dimensions; -1 if not even that is declared.
    pub rank: i32,
    /// The dimensions, outermost first; -1 for those that only a run tells.
    pub dims: *const i64,
    /// 1 if it may be left out, because the model holds a default; else 0.
    pub is_optional: i32,
}

/// A tensor to be read: elements in row-major order, without gaps.
#[repr(C)]
#[derive(Debug)]
pub struct anabranch_tensor {
    /// Its name, in UTF-8.
    pub name: *const c_char,
    /// One of anabranch_type.
    pub element_type: i32,
    /// The dimensions, outermost first; may be null if there are none.
    pub dims: *const i64,
    /// The number of dimensions, 16 at most.
    pub rank: usize,
    /// The elements; may be null if there are no bytes. Used where they are if they are aligned to 8 bytes, and copied if they are not or are
    /// few.
    pub data: *const c_void,
    /// How many bytes that are: exactly those of the elements.
    pub bytes: usize,
}

/// Where an output is to be written.
#[repr(C)]
#[derive(Debug)]
pub struct anabranch_room {
    /// The output's name, in UTF-8.
    pub name: *const c_char,
    /// One of anabranch_type: exactly the output's.
    pub element_type: i32,
    /// The dimensions, outermost first: exactly the output's; may be null if there are none.
    pub dims: *const i64,
    /// The number of dimensions, 16 at most.
    pub rank: usize,
    /// Where the elements go; may be null if there are no bytes. Written directly if it is aligned to 8 bytes.
    pub data: *mut c_void,
    /// How many bytes that are: exactly those of the elements.
    pub bytes: usize,
}
