//! Names of files, tensors and nodes as errors show them.

pub(crate) use anabranch_placement::quoted::{Line, Name};
