//! Element-wise kernels: an expression interpreted over blocks of elements.

mod code;
mod convert;
mod epilogue;
mod interpret;
mod layout;
mod number;
mod number_f32;
mod number_f64;
mod number_i64;
mod source;

pub(crate) use epilogue::Epilogue;
