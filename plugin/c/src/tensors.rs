//! Tensors of callers. Their faults are found before any element is read.

use super::abi::anabranch_status as Status;
use super::abi::{anabranch_output_buffer, anabranch_tensor};
use super::open::Open;
use super::status::{Failure, Result};
use super::text::given;
use anabranch::import::element_type;
use anabranch::{DType, Inputs, Shape, TensorSpec, ValueInfo, borrowed};
use anabranch_kernels::shape::MAX_RANK;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

/// Returns the number of a type in ONNX files.
pub(crate) fn code(dtype: DType) -> i32 {
    let numbers = 0..=i32::from(u8::MAX);
    numbers.into_iter().find(|number| element_type((*number).into()) == Some(dtype)).unwrap_or(0)
}

/// Type, shape and addresses of a caller's tensor.
struct TensorMemory {
    spec: TensorSpec,
    /// Addresses of its bytes, if there are any.
    bytes: Range<usize>,
}

/// Caller's memory for an output.
pub(crate) struct OutputMemory {
    pub(crate) spec: TensorSpec,
    /// `None` if it has no bytes.
    pub(crate) place: Option<NonNull<u8>>,
    bytes: Range<usize>,
}

/// A caller's description of a tensor, before it is checked.
struct Said {
    element_type: i32,
    dims: *const i64,
    rank: usize,
    bytes: usize,
}

/// Returns the caller's tensors for a run, used in place.
///
/// # Errors
/// If there are too many, or one has no name, is given twice, or is inconsistent.
///
/// # Safety
/// `tensors` must point to `count` tensors with valid names, dimensions and elements, all of which must stay unchanged
/// as long as the inputs are used.
pub(crate) unsafe fn inputs(
    open: &Open,
    tensors: *const anabranch_tensor,
    count: usize,
) -> Result<(Inputs, Vec<Range<usize>>)> {
    let (mut inputs, mut ranges) = (Inputs::new(), Vec::new());
    // SAFETY: by this function's contract.
    for tensor in unsafe { listed(tensors, count, open.session.inputs(), "input") }? {
        // SAFETY: by this function's contract.
        let name = unsafe { given(tensor.name, "the name of an input") }?;
        if inputs.specs().any(|(known, _)| known == name) {
            return Err(Failure::argument(format_args!("input `{name}` is given twice")));
        }
        let anabranch_tensor { element_type, dims, rank, bytes, .. } = *tensor;
        let said = Said { element_type, dims, rank, bytes };
        // SAFETY: by this function's contract.
        let TensorMemory { spec, bytes } = unsafe { said.place(tensor.data.addr(), &format!("input `{name}`")) }?;
        let short = || Failure::new(Status::Memory, format_args!("out of memory for input `{name}`, {spec}"));
        // SAFETY: there are as many bytes as `spec` has, or none. This function's contract covers the rest.
        inputs = inputs.tensor(name, unsafe { borrowed::input(tensor.data.cast(), spec.clone()) }.ok_or_else(short)?);
        ranges.push(bytes);
    }
    Ok((inputs, ranges))
}

/// Returns the caller's memory for outputs, by their index in the model's order; `None` for outputs that are not
/// wanted.
///
/// # Errors
/// As [`inputs`]. Also if an output is unknown, or its memory overlaps that of another output or input.
///
/// # Safety
/// `entries` must point to `count` entries with valid names and dimensions.
pub(crate) unsafe fn output_memory(
    open: &Open,
    entries: *const anabranch_output_buffer,
    count: usize,
    inputs: &[Range<usize>],
) -> Result<Vec<Option<OutputMemory>>> {
    let outputs = open.session.outputs();
    let mut found: Vec<Option<OutputMemory>> = outputs.iter().map(|_| None).collect();
    // SAFETY: by this function's contract.
    for entry in unsafe { listed(entries, count, outputs, "output") }? {
        // SAFETY: by this function's contract.
        let name = unsafe { given(entry.name, "the name of an output") }?;
        let names = || outputs.iter().map(ValueInfo::name);
        let unknown = || {
            let known = names().collect::<Vec<_>>().join(", ");
            Failure::argument(format_args!("the model has no output `{name}`; its outputs are {known}"))
        };
        let at = names().position(|known| known == name).ok_or_else(unknown)?;
        let anabranch_output_buffer { element_type, dims, rank, bytes, data, .. } = *entry;
        let said = Said { element_type, dims, rank, bytes };
        // SAFETY: by this function's contract.
        let TensorMemory { spec, bytes } = unsafe { said.place(data.addr(), &format!("output `{name}`")) }?;
        let others = found.iter().flatten().map(|memory| &memory.bytes);
        if inputs.iter().chain(others).any(|other| other.start < bytes.end && bytes.start < other.end) {
            let text = format!("output `{name}` overlaps another tensor of this call; use separate memory");
            return Err(Failure::argument(text));
        }
        let place = NonNull::new(data.cast()).filter(|_| !bytes.is_empty());
        if found[at].replace(OutputMemory { spec, place, bytes }).is_some() {
            return Err(Failure::argument(format_args!("output `{name}` is given twice")));
        }
    }
    Ok(found)
}

/// Returns a caller's list, which must not have more entries than the model.
///
/// # Safety
/// `first` must be null or point to `count` entries, which must stay unchanged.
unsafe fn listed<'a, T>(first: *const T, count: usize, model: &[ValueInfo], what: &str) -> Result<&'a [T]> {
    if count > model.len() {
        let known = model.len();
        return Err(Failure::argument(format_args!("{count} {what}s are given, but the model has {known}")));
    }
    match (first.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::argument(format_args!("the list of {what}s is null, but its count is {count}"))),
        (false, _) if !first.is_aligned() => Err(Failure::argument(format_args!("the list of {what}s is not aligned"))),
        // SAFETY: by this function's contract; the list is aligned, and `count` is small.
        (false, _) => Ok(unsafe { slice::from_raw_parts(first, count) }),
    }
}

impl Said {
    /// Returns the tensor's type, shape and addresses, if its data is at `address`.
    ///
    /// # Safety
    /// `dims` must be null or have `rank` entries.
    unsafe fn place(&self, address: usize, what: &str) -> Result<TensorMemory> {
        let wrong = |text: &dyn std::fmt::Display| Failure::argument(format_args!("{what}: {text}"));
        let unknown = || wrong(&format_args!("{} is not an element type; see anabranch_type", self.element_type));
        let dtype = element_type(self.element_type.into()).ok_or_else(unknown)?;
        let rank = self.rank;
        if rank > MAX_RANK {
            return Err(wrong(&format_args!("the tensor has {rank} dimensions, but at most {MAX_RANK} are supported")));
        }
        let dims: &[i64] = match (self.dims.is_null(), rank) {
            (_, 0) => &[],
            (true, _) => return Err(wrong(&format_args!("the dimensions are null, but the rank is {rank}"))),
            (false, _) if !self.dims.is_aligned() => return Err(wrong(&"the dimensions are not aligned")),
            // SAFETY: by this function's contract; they are aligned, and few.
            (false, _) => unsafe { slice::from_raw_parts(self.dims, rank) },
        };
        let sizes: std::result::Result<Vec<usize>, _> = dims.iter().map(|dim| usize::try_from(*dim)).collect();
        let sizes = sizes.map_err(|_| wrong(&format_args!("a dimension of {dims:?} is negative")))?;
        let shape = Shape::new(sizes).map_err(|error| wrong(&error))?;
        let spec = TensorSpec::new(dtype, shape);
        if spec.bytes() != self.bytes {
            return Err(wrong(&format_args!("{spec} has {} bytes, but {} are given", spec.bytes(), self.bytes)));
        }
        if address == 0 && self.bytes > 0 {
            return Err(wrong(&format_args!("the data is null, but its size is {} bytes", self.bytes)));
        }
        let end = address.checked_add(self.bytes);
        let end = end.ok_or_else(|| wrong(&"its bytes go beyond the end of the address space"))?;
        Ok(TensorMemory { spec, bytes: address..end })
    }
}
