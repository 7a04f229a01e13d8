//! Types of the C header `anabranch.h`, and functions that return the versions of the header and the library.
#![allow(non_camel_case_types, reason = "the names of the header")]

use std::ffi::{c_char, c_void};

/// Version of this header. It changes when callers have to be compiled again.
pub const ANABRANCH_INTERFACE: u32 = 1;

/// Returns the version of the header that the library was built with, to be compared with ANABRANCH_INTERFACE.
///
/// Any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_interface() -> u32 {
    ANABRANCH_INTERFACE
}

/// Returns the library's version, such as "0.1.0". The string is never freed.
///
/// Any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn anabranch_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Result of a call. anabranch_last_error() returns the text of a failure. Further numbers may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum anabranch_status {
    /// The call succeeded.
    Ok = 0,
    /// The call is wrong: a null pointer, a handle that is not open, sizes that contradict each other, an unknown
    /// output.
    Argument = 1,
    /// An option is unknown, has an invalid value, or names a strategy or a file that does not exist.
    Option = 2,
    /// The file cannot be read, or is not a valid ONNX model.
    Model = 3,
    /// The model uses operators without a kernel.
    Unsupported = 4,
    /// An input is missing, or does not match the model's declaration.
    Input = 5,
    /// A device does not exist, cannot be used, or was lost.
    Device = 6,
    /// The required memory exceeds a device's memory, or no memory is left.
    Memory = 7,
    /// There is no plan within the constraints, for another reason than memory.
    Infeasible = 8,
    /// The run was cancelled.
    Cancelled = 9,
    /// The run exceeded its time limit.
    Timeout = 10,
    /// The buffer is too small for the text; the call reports the required size.
    BufferTooSmall = 11,
    /// A bug in Anabranch. Please report it.
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
    /// As F8E4m3fn with another bias, and NaN instead of negative zero.
    F8E4m3fnuz = 18,
    /// 8-bit float of 5 exponent and 2 mantissa bits.
    F8E5m2 = 19,
    /// As F8E5m2 with another bias, NaN instead of negative zero, and no infinities.
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

/// An open model.
pub struct anabranch_session {
    _opaque: (),
}

/// Outputs and report of a run.
pub struct anabranch_result {
    _opaque: (),
}

/// A token that asks runs to stop, from any thread.
pub struct anabranch_cancel {
    _opaque: (),
}

/// An input or output as declared by the model. The pointers are valid until the session is freed.
#[repr(C)]
#[derive(Debug)]
pub struct anabranch_value {
    /// Name, in UTF-8.
    pub name: *const c_char,
    /// Description for people, in UTF-8: `x: f32[batch×3×224×224]`, with the symbol `batch`, and `?` for undeclared
    /// parts.
    pub description: *const c_char,
    /// One of anabranch_type; ANABRANCH_TYPE_UNKNOWN for an output whose type is not declared.
    pub element_type: i32,
    /// Number of dimensions; -1 if it is not declared.
    pub rank: i32,
    /// Dimensions, outermost first; -1 for dimensions that are known only in a run.
    pub dims: *const i64,
    /// 1 if the input may be left out, because the model holds a default; otherwise 0.
    pub is_optional: i32,
}

/// A tensor to be read: elements in row-major order, without gaps.
#[repr(C)]
#[derive(Debug)]
pub struct anabranch_tensor {
    /// Name, in UTF-8.
    pub name: *const c_char,
    /// One of anabranch_type.
    pub element_type: i32,
    /// Dimensions, outermost first; may be null if there are none.
    pub dims: *const i64,
    /// Number of dimensions, at most 16.
    pub rank: usize,
    /// The elements; may be null if there are no bytes. Used in place if they are aligned to 8 bytes. Copied if they
    /// are not aligned, or are few.
    pub data: *const c_void,
    /// Number of bytes: exactly those of the elements.
    pub bytes: usize,
}

/// Memory for an output.
#[repr(C)]
#[derive(Debug)]
pub struct anabranch_output_buffer {
    /// Name of the output, in UTF-8.
    pub name: *const c_char,
    /// One of anabranch_type: exactly the output's.
    pub element_type: i32,
    /// Dimensions, outermost first: exactly the output's. May be null if there are none.
    pub dims: *const i64,
    /// Number of dimensions, at most 16.
    pub rank: usize,
    /// Memory for the elements; may be null if there are no bytes. Written directly if it is aligned to 8 bytes.
    pub data: *mut c_void,
    /// Number of bytes: exactly those of the elements.
    pub bytes: usize,
}
