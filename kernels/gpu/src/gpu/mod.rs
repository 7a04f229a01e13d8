//! Kernels for GPUs: one `.wgsl` file and its dispatch per kernel, run through wgpu.
//!
//! [`supports`] decides from a node's shapes alone whether it can run on a GPU of given [`GpuLimits`]. [`compile`]
//! records the node's dispatches over fixed buffers once, and [`Kernel::encode`] adds them to a pass at every run. All
//! tensors that are computed are `f32`, or indices that a search finds; lengths, positions and narrow weights are read
//! as they are. Shaders run with wgpu's bounds checks, so no node can read or write outside its buffers. Under OpenGL
//! only a robust context of the driver checks buffers.
//!
//! A kernel's result has the same bits at every run on the same device. The shapes alone decide how work is cut, every
//! reduction is a fixed tree, and no result is accumulated atomically.

#[cfg(test)]
mod agreement;
mod arg_reduce;
mod attention;
mod block;
mod cache;
mod concat;
mod conv;
mod conv_transpose;
mod copy;
#[cfg(test)]
mod corpus;
mod device;
mod epilogue;
mod expression;
mod gather;
mod half;
#[cfg(test)]
mod isa;
mod kernel;
mod lanes;
mod library;
mod limits;
mod map;
mod matmul;
mod narrow;
mod normalize;
mod pad;
mod pinned;
mod pinned_copy;
mod pipelines;
mod pool;
mod product;
mod recurrent;
mod reduce;
mod resize;
#[cfg(test)]
mod rows;
mod shader;
mod slice;
mod softmax;
mod space;
mod status;
mod stored;
#[cfg(test)]
pub(crate) mod testing;
mod tile;
mod timestamps;
mod top;
mod transpose;
#[cfg(test)]
mod validation;
mod window;
mod words;

pub use device::{Gpu, caught, is_race, one_at_a_time};
pub use kernel::Kernel;
pub use limits::{GpuLimits, Matrices};
pub use pinned_copy::PinnedCopy;
pub use status::{StatusWord, status_error};
pub use timestamps::TimestampRing;
pub use wgpu::{Adapter, Buffer as GpuBuffer};

use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Op};
use anabranch_op::tensor::{Tensor, TensorSpec};
use kernel::Recorder;
use shader::Shader;
use std::ops::Range;

/// Buffers for which a kernel is compiled.
///
/// Each holds one whole tensor from its first byte on, has the usage `STORAGE`, and may be larger than the tensor. A
/// buffer that is written must not be bound twice.
#[derive(Clone, Copy, Debug)]
pub struct Buffers<'a> {
    /// Buffer of each input; `None` for inputs that [`binds`] reports as not needed, and for an input that already lies
    /// in an output's buffer ([`NodeSpec::in_place`]).
    pub inputs: &'a [Option<&'a wgpu::Buffer>],
    /// Buffer of each output.
    pub outputs: &'a [&'a wgpu::Buffer],
    /// Buffer of at least [`scratch_bytes`] bytes, if that is not 0. Kernels that run one after the other may share it.
    pub scratch: Option<&'a wgpu::Buffer>,
    /// Status word, for a node that [has one](has_status).
    pub status: Option<StatusWord<'a>>,
}

type Record<'n> = dyn for<'a> Fn(&mut Recorder<'a>) -> Result<(), KernelError> + 'n;

/// Computation of one node. A kernel's file makes it from a node that fits its op's definition, so its arithmetic on
/// the tensors' sizes cannot fail.
struct Recipe<'n> {
    /// Storage buffers that its dispatch with most buffers binds.
    bindings: usize,
    scratch_bytes: u64,
    /// Bytes of tables and packed constants that the kernel keeps.
    resident_bytes: u64,
    /// Passes through loops, inner and outer ones together, that one thread makes in the longest dispatch.
    passes: usize,
    /// Inputs whose plain buffers are not read.
    unbound: Vec<usize>,
    /// Whether it reports values in a status word.
    has_status: bool,
    /// Whether matrix units compute it.
    needs_matrices: bool,
    record: Box<Record<'n>>,
}

impl<'n> Recipe<'n> {
    /// Creates a recipe of one dispatch that binds all tensors and nothing else, and has no loop.
    fn new(node: &NodeSpec, record: impl for<'a> Fn(&mut Recorder<'a>) -> Result<(), KernelError> + 'n) -> Self {
        let bindings = node.inputs.len() + node.outputs.len();
        Self {
            bindings,
            scratch_bytes: 0,
            resident_bytes: 0,
            passes: 0,
            unbound: Vec::new(),
            has_status: false,
            needs_matrices: false,
            record: Box::new(record),
        }
    }

    /// Adds a status word, which each of its dispatches may bind.
    fn with_status(self) -> Self {
        let (bindings, resident_bytes) = (self.bindings + 1, self.resident_bytes + status::BYTES);
        Self { bindings, resident_bytes, has_status: true, ..self }
    }

    fn binds(&self, input: usize) -> bool {
        !self.unbound.contains(&input)
    }
}

/// Returns a key of the order in which the node's sums are computed.
///
/// Nodes that differ only in their numbers of rows of a batch give the same bits for a row if they have the same key.
/// `None` if no numbers of rows are known to do so.
#[doc(hidden)]
pub fn summation(node: &NodeSpec, _: &[bool]) -> Option<Vec<usize>> {
    match &node.op {
        Op::MatMul(op) => matmul::summation(node, op),
        Op::NarrowMatMul(op) => matmul::narrow_summation(node, op),
        Op::Conv(op) => conv::summation(node, op),
        Op::Reduce(op) => Some(reduce::Reduction::new(node, op).summation()),
        Op::Softmax(op) => Some(softmax::summation(node, op)),
        // A thread or the lanes of a row compute each result, in an order that its own elements decide.
        Op::ConvTranspose(_) | Op::Pool(_) | Op::Normalize(_) | Op::Resize(_) | Op::Recurrent(_) => Some(Vec::new()),
        // Elements are moved, compared, or computed one by one.
        Op::Map(_)
        | Op::Transpose(_)
        | Op::Concat(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Gather(_)
        | Op::ArgReduce(_)
        | Op::TopK(_)
        | Op::Append(_)
        | Op::Rotary(_) => Some(Vec::new()),
        _ => None,
    }
}

/// Checks that a node can run on a GPU of these limits. `constants[i]` says whether input `i` is constant.
///
/// # Errors
/// The reason why it cannot; the caller turns it into a device constraint.
pub fn supports(node: &NodeSpec, constants: &[bool], limits: &GpuLimits) -> Result<(), KernelError> {
    let recipe = recipe(node, constants)?;
    let refuse = |reason: String| Err(node.unsupported(reason));
    if let Some(shortage) = limits.shortage() {
        return refuse(shortage);
    }
    if recipe.needs_matrices && limits.matrices.is_none() {
        return refuse("its precision needs matrix units for f16, which the device lacks".into());
    }
    let specs = || node.inputs.iter().chain(&node.outputs);
    if let Some(spec) = specs().find(|spec| u32::try_from(spec.shape.elements()).is_err()) {
        return refuse(format!("{spec} has more elements than shaders can count with 32 bits"));
    }
    if let Some((what, bytes)) = largest_buffer(node, &recipe).filter(|(_, bytes)| *bytes > limits.binding_bytes) {
        return refuse(format!("{what} has {bytes} bytes, but the device binds at most {}", limits.binding_bytes));
    }
    if recipe.passes > limits::MOST_PASSES {
        return refuse(format!(
            "a thread would loop {} times, but at most {} are safe",
            recipe.passes,
            limits::MOST_PASSES
        ));
    }
    if recipe.bindings > limits.bindings as usize {
        return refuse(format!(
            "it needs {} buffers, but the device binds at most {}",
            recipe.bindings, limits.bindings
        ));
    }
    Ok(())
}

/// Returns name and bytes of the largest buffer that a node's dispatches bind.
fn largest_buffer(node: &NodeSpec, recipe: &Recipe<'_>) -> Option<(String, u64)> {
    let named =
        |what: &'static str| move |(at, spec): (usize, &TensorSpec)| (format!("{what} {at}"), spec.bytes() as u64);
    let inputs = node.inputs.iter().enumerate().map(named("input"));
    let outputs = node.outputs.iter().enumerate().map(named("output"));
    let own = [("its scratch memory", recipe.scratch_bytes), ("its table", recipe.resident_bytes)];
    inputs.chain(outputs).chain(own.map(|(what, bytes)| (what.to_owned(), bytes))).max_by_key(|(_, bytes)| *bytes)
}

/// Returns the bytes of scratch memory that the node's kernel needs while it runs; 0 for a node that no GPU supports.
pub fn scratch_bytes(node: &NodeSpec) -> u64 {
    // Scratch memory does not depend on constants, but the existence of a kernel may.
    let constants = vec![true; node.inputs.len()];
    recipe(node, &constants).map_or(0, |recipe| recipe.scratch_bytes)
}

/// Returns the bytes of device memory that a compiled kernel keeps for itself: tables, and constants in its own layout.
pub fn resident_bytes(node: &NodeSpec, constants: &[bool]) -> u64 {
    recipe(node, constants).map_or(0, |recipe| recipe.resident_bytes)
}

/// Whether the node's kernel reports values that make the node undefined in a [status word](StatusWord).
pub fn has_status(node: &NodeSpec, constants: &[bool]) -> bool {
    recipe(node, constants).is_ok_and(|recipe| recipe.has_status)
}

/// Returns which inputs are read from buffers. All other inputs are constants that the kernel keeps in its own layout.
pub fn binds(node: &NodeSpec, constants: &[bool]) -> Vec<bool> {
    match recipe(node, constants) {
        Ok(recipe) => (0..node.inputs.len()).map(|input| recipe.binds(input)).collect(),
        Err(_) => vec![true; node.inputs.len()],
    }
}

/// Records a node's dispatches over `buffers`. `constants[i]` is the value of input `i` if it is constant. With `rows`,
/// only these rows of a node that divides into rows ([`NodeSpec::row_plan`]) are computed; they are read and written at
/// their positions in the whole tensors.
///
/// Takes milliseconds for the first kernel of a kind and microseconds after; any thread may compile.
///
/// # Errors
/// The errors of [`supports`], buffers that do not fit the node, a constant index out of range, or an error of the
/// driver.
pub fn compile(
    gpu: &Gpu,
    node: &NodeSpec,
    constants: &[Option<Tensor>],
    buffers: &Buffers<'_>,
    rows: Option<Range<usize>>,
) -> Result<Kernel, KernelError> {
    let constant: Vec<_> = (0..node.inputs.len()).map(|i| matches!(constants.get(i), Some(Some(_)))).collect();
    supports(node, &constant, gpu.facts())?;
    let recipe = recipe(node, &constant)?;
    check_constants(node, constants)?;
    check_buffers(node, &recipe, buffers)?;
    check_rows(node, rows.as_ref())?;
    if node.outputs.iter().all(|spec| spec.shape.elements() == 0) {
        return Ok(Kernel::empty());
    }
    gpu.guarded(&format!("the kernel of {}", node.op.name()), || {
        Recorder::new(gpu, node, constants, buffers, rows).finish(&recipe)
    })
}

/// Returns the recipe for a node, after checking that its tensors fit the op's definition.
fn recipe<'n>(node: &'n NodeSpec, constants: &[bool]) -> Result<Recipe<'n>, KernelError> {
    let float = |spec: &TensorSpec| spec.dtype == DType::F32;
    // Integers, and weights that are widened where they are read.
    let other = |input: usize| match &node.op {
        Op::Gather(_) | Op::NarrowMatMul(_) => input == 1,
        // Its check leaves the types of caches.
        Op::Attention(_) => matches!(input, 1..=4),
        Op::Append(_) => input == 2 || stored::is_cached(node.inputs[input].dtype),
        Op::Rotary(_) => input == 3,
        _ => false,
    };
    let read = node.inputs.iter().enumerate().filter(|(input, _)| !other(*input)).map(|(_, spec)| spec);
    let is_made_otherwise = |spec: &TensorSpec| match &node.op {
        Op::Append(_) => stored::is_cached(spec.dtype),
        Op::ArgReduce(_) | Op::TopK(_) => spec.dtype == DType::I64,
        _ => false,
    };
    let made = node.outputs.iter().filter(|spec| !is_made_otherwise(spec));
    if let Some(spec) = read.chain(made).find(|spec| !float(spec)) {
        return Err(node.unsupported(format!("GPU kernels compute only f32, but a tensor is {}", spec.dtype)));
    }
    node.check()?;
    let recipe = match &node.op {
        Op::Map(op) => block::of_map(node, op)?,
        Op::MatMul(op) => matmul::recipe(node, op)?,
        Op::NarrowMatMul(op) => matmul::narrow(node, op)?,
        Op::Conv(op) => conv::recipe(node, op)?,
        Op::ConvTranspose(op) => conv_transpose::recipe(node, op)?,
        Op::Pool(op) => pool::recipe(node, op)?,
        Op::Reduce(op) => reduce::recipe(node, op),
        Op::ArgReduce(op) => arg_reduce::recipe(node, op),
        Op::TopK(op) => top::recipe(node, op)?,
        Op::Softmax(op) => softmax::recipe(node, op),
        Op::Normalize(op) => normalize::recipe(node, op)?,
        Op::Resize(op) => resize::recipe(node, op),
        Op::Recurrent(op) => recurrent::recipe(node, op, constants)?,
        Op::Transpose(op) => transpose::recipe(node, op),
        Op::Concat(op) => concat::recipe(node, op),
        Op::Slice(op) => slice::recipe(node, op),
        Op::Pad(op) => pad::recipe(node, op)?,
        Op::Gather(op) => gather::recipe(node, op, constants),
        Op::Block(block) => block::recipe(node, block)?,
        Op::IntegerMatMul(_) | Op::IntegerConv(_) => {
            return Err(node.unsupported("its result holds integers"));
        }
        Op::Running(_) => return Err(node.unsupported("running sums and products are computed on CPUs")),
        Op::Fourier(_) => return Err(node.unsupported("fast transforms are computed on CPUs")),
        Op::Scatter(_) => return Err(node.unsupported("its updates depend on each other")),
        Op::Attention(op) => attention::recipe(node, op)?,
        Op::Append(op) => cache::append(node, op)?,
        Op::Rotary(op) => cache::rotary(node, op)?,
        Op::Length(_) => return Err(node.unsupported("CPUs judge lengths before anything reads or writes at them")),
        Op::Trees(_) => return Err(node.unsupported("each row takes its own path through the trees")),
    };
    let is_empty = |spec: &TensorSpec| spec.shape.elements() == 0;
    let some_input = node.inputs.iter().enumerate().any(|(index, spec)| is_empty(spec) && recipe.binds(index));
    let outputs = node.outputs.iter().filter(|spec| is_empty(spec)).count();
    if (some_input || outputs > 0) && outputs < node.outputs.len() {
        return Err(node.unsupported("a tensor without elements has no buffer on a GPU"));
    }
    Ok(recipe)
}

fn check_constants(node: &NodeSpec, constants: &[Option<Tensor>]) -> Result<(), KernelError> {
    let differs = |(spec, constant): (&TensorSpec, &Option<Tensor>)| {
        constant
            .as_ref()
            .is_some_and(|tensor| tensor.dtype() != spec.dtype || tensor.shape().elements() != spec.shape.elements())
    };
    match node.inputs.iter().zip(constants).position(differs) {
        Some(input) => Err(node.invalid(format!("the constant of input {input} is another tensor"))),
        None => Ok(()),
    }
}

fn check_buffers(node: &NodeSpec, recipe: &Recipe<'_>, buffers: &Buffers<'_>) -> Result<(), KernelError> {
    let refuse = |reason: String| Err(KernelError::Gpu(format!("{}: {reason}", node.op.name())));
    if buffers.inputs.len() != node.inputs.len() || buffers.outputs.len() != node.outputs.len() {
        return refuse(format!("{} and {} buffers were given", buffers.inputs.len(), buffers.outputs.len()));
    }
    let inputs = node.inputs.iter().zip(buffers.inputs).enumerate();
    let is_in_place = |at: usize| node.in_place().is_some_and(|(input, _)| input == at && buffers.inputs[at].is_none());
    let bound = inputs.filter(|(index, _)| recipe.binds(*index) && !is_in_place(*index));
    let bound = bound.map(|(_, (spec, buffer))| (spec, *buffer));
    let outputs = node.outputs.iter().zip(buffers.outputs).map(|(spec, buffer)| (spec, Some(*buffer)));
    for (spec, buffer) in bound.chain(outputs) {
        let size = buffer.map_or(0, wgpu::Buffer::size);
        if size < spec.bytes() as u64 {
            return refuse(format!("a buffer of {size} bytes for {spec}"));
        }
    }
    if recipe.has_status
        && buffers.status.is_none_or(|status| status.buffer.size() / status::BYTES <= status.word as u64)
    {
        return refuse("its status word has no place".to_owned());
    }
    match buffers.scratch.map_or(0, wgpu::Buffer::size) {
        size if size < recipe.scratch_bytes => {
            refuse(format!("{size} bytes of scratch memory are given, but {} are needed", recipe.scratch_bytes))
        }
        _ => Ok(()),
    }
}

fn check_rows(node: &NodeSpec, rows: Option<&Range<usize>>) -> Result<(), KernelError> {
    let Some(rows) = rows else { return Ok(()) };
    let most = node.row_plan().map_or(1, |plan| plan.rows);
    if rows.start <= rows.end && rows.end <= most {
        return Ok(());
    }
    Err(node.invalid(format!("rows {rows:?} of a node that has {most}")))
}
