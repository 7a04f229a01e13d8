//! The operator set after lowering: few ops, each on dense row-major tensors of known shapes.
//!
//! Several common operators are missing on purpose. There is no reshape: a node reads a value under any shape
//! ([`NodeSpec::inputs`]). There is no broadcast, cast, select or activation: each is a [`Map`]. There is no bias: it
//! is an epilogue, a [`Map`]'s expression that is applied to the result while the result is still in cache.

mod block;
mod cache;
mod check;
mod equality;
mod expression;
mod family;
mod kinds;
mod literal;
mod precision;
mod resize;
mod rows;
#[doc(hidden)]
pub mod shallow;
mod taps;
mod trees;
mod winograd;
mod work;

pub use block::{Block, Member, Operand};
pub use cache::AttentionSizes;
pub use cache::{Append, Attention, Length, Rotary};
pub use expression::{Binary, Domain, Expression, ExpressionError, Register, Step, Unary};
pub use family::Family;
pub use kinds::{
    ArgReduce, Concat, Conv, ConvTranspose, Fourier, Gather, IntegerConv, IntegerMatMul, MatMul, NarrowFormat,
    NarrowMatMul, Normalize, Pad, PadMode, Pool, PoolKind, Recurrent, RecurrentKind, Reduce, ReduceKind, Rounding,
    Running, Scatter, ScatterKind, Slice, Softmax, TopK, Transpose,
};
pub use literal::Literal;
pub use precision::Precision;
pub use resize::{Coordinates, Interpolation, NearestRounding, Resize};
pub use rows::RowPlan;
pub use taps::{NEIGHBOURS, Taps, cubic_weights};
pub use trees::{TreeAggregate, TreeNode, Trees};
pub use winograd::WinogradTile;
pub use work::Work;

use crate::tensor::TensorSpec;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One lowered operation. Each kind documents the order of its inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// An expression over corresponding elements of the inputs, which are broadcast to the output's shape.
    Map(Map),
    /// Matrix product over batches, with an epilogue.
    MatMul(MatMul),
    /// Matrix product with weights of fewer bits, with an epilogue.
    NarrowMatMul(NarrowMatMul),
    /// Matrix product of 8-bit integers over batches.
    IntegerMatMul(IntegerMatMul),
    /// Two-dimensional convolution of 8-bit integers.
    IntegerConv(IntegerConv),
    /// Two-dimensional convolution, with an epilogue.
    Conv(Conv),
    /// Two-dimensional transposed convolution, with an epilogue.
    ConvTranspose(ConvTranspose),
    /// Two-dimensional pooling.
    Pool(Pool),
    /// Reduction over axes.
    Reduce(Reduce),
    /// Index of the greatest or least element along an axis.
    ArgReduce(ArgReduce),
    /// Greatest or least elements along an axis, in order.
    TopK(TopK),
    /// Running sums or products along an axis.
    Running(Running),
    /// Discrete Fourier transforms of lines.
    Fourier(Fourier),
    /// Slices replaced by, or combined with, updates.
    Scatter(Scatter),
    /// Softmax along one axis.
    Softmax(Softmax),
    /// Normalisation to zero mean and unit variance over trailing axes, with an epilogue.
    Normalize(Normalize),
    /// Resampling of the two innermost axes.
    Resize(Resize),
    /// A recurrent layer over time, in one direction.
    Recurrent(Recurrent),
    /// Permutation of the axes.
    Transpose(Transpose),
    /// Concatenation along an axis.
    Concat(Concat),
    /// Strided sub-tensor.
    Slice(Slice),
    /// Border added around a tensor.
    Pad(Pad),
    /// Slices chosen along an axis by indices.
    Gather(Gather),
    /// Attention over a cache of keys and values.
    Attention(Attention),
    /// New positions written into a cache.
    Append(Append),
    /// Rotary position embedding.
    Rotary(Rotary),
    /// Lengths of caches that are judged.
    Length(Length),
    /// Scores of rows by a forest of decision trees.
    Trees(Trees),
    /// Nodes that are computed together, chunk of rows by chunk of rows.
    Block(Block),
}

/// Expression over corresponding elements of inputs of any shapes that broadcast to the output's.
///
/// Inputs: as many as the expression has. Output: one, of any type; it is converted on the way out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// Type in which every register is held.
    pub domain: Domain,
    /// Expression that is computed.
    pub expression: Expression,
}

/// Class of an op in a canonical task graph (De Matteis 2023, section 3).
///
/// It says how the output volume follows from the input volume, and whether the op can start before its whole input is
/// available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// As many elements out as in, one for one.
    ElementWise,
    /// Fewer elements out than in, each from consecutive inputs.
    Downsampler,
    /// More elements out than in.
    Upsampler,
    /// A product of matrices or a convolution.
    MatMul,
    /// Needs its whole input before its first output.
    Buffer,
}

impl Class {
    /// Returns the name that reports show.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ElementWise => "element-wise",
            Self::Downsampler => "downsampler",
            Self::Upsampler => "upsampler",
            Self::MatMul => "matmul",
            Self::Buffer => "buffer",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An op and the tensors of one node: all that a kernel needs to know before the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// The operation.
    pub op: Op,
    /// Type of each input, and the shape *under which this node reads it*.
    pub inputs: Vec<TensorSpec>,
    /// Type and shape of each output.
    pub outputs: Vec<TensorSpec>,
}

impl Op {
    /// Returns the op's name that reports show: `matmul`, `conv`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Map(_) => "map",
            Self::MatMul(_) => "matmul",
            Self::NarrowMatMul(_) => "narrow_matmul",
            Self::IntegerMatMul(_) => "integer_matmul",
            Self::IntegerConv(_) => "integer_conv",
            Self::Conv(_) => "conv",
            Self::ConvTranspose(_) => "conv_transpose",
            Self::Pool(_) => "pool",
            Self::Reduce(_) => "reduce",
            Self::ArgReduce(_) => "arg_reduce",
            Self::TopK(_) => "top_k",
            Self::Running(_) => "running",
            Self::Fourier(_) => "fourier",
            Self::Scatter(_) => "scatter",
            Self::Softmax(_) => "softmax",
            Self::Normalize(_) => "normalize",
            Self::Resize(_) => "resize",
            Self::Recurrent(_) => "recurrent",
            Self::Transpose(_) => "transpose",
            Self::Concat(_) => "concat",
            Self::Slice(_) => "slice",
            Self::Pad(_) => "pad",
            Self::Gather(_) => "gather",
            Self::Attention(_) => "attention",
            Self::Append(_) => "append",
            Self::Rotary(_) => "rotary",
            Self::Length(_) => "length",
            Self::Trees(_) => "trees",
            Self::Block(_) => "block",
        }
    }

    /// Returns the expression applied to each element of the result before it is stored, if the op has one. Register 0
    /// is the element. The registers after it are the node's inputs from [`Self::epilogue_inputs_start`] on, each
    /// broadcast to the output's shape, all `f32`.
    pub const fn epilogue(&self) -> Option<&Expression> {
        match self {
            Self::MatMul(op) => op.epilogue.as_ref(),
            Self::NarrowMatMul(op) => op.epilogue.as_ref(),
            Self::Conv(op) => op.epilogue.as_ref(),
            Self::ConvTranspose(op) => op.epilogue.as_ref(),
            Self::Normalize(op) => op.epilogue.as_ref(),
            _ => None,
        }
    }

    /// Whether the op can have an [epilogue](Self::epilogue).
    pub const fn has_epilogue(&self) -> bool {
        use Op::{Conv, ConvTranspose, MatMul, NarrowMatMul, Normalize};
        matches!(self, MatMul(_) | NarrowMatMul(_) | Conv(_) | ConvTranspose(_) | Normalize(_))
    }

    /// Returns the field that holds the epilogue, for the ops that can have an epilogue.
    pub const fn epilogue_mut(&mut self) -> Option<&mut Option<Expression>> {
        match self {
            Self::MatMul(op) => Some(&mut op.epilogue),
            Self::NarrowMatMul(op) => Some(&mut op.epilogue),
            Self::Conv(op) => Some(&mut op.epilogue),
            Self::ConvTranspose(op) => Some(&mut op.epilogue),
            Self::Normalize(op) => Some(&mut op.epilogue),
            _ => None,
        }
    }

    /// Returns how many of a node's inputs the op itself reads; the inputs after them belong to the epilogue.
    pub const fn epilogue_inputs_start(&self) -> usize {
        match self {
            Self::Normalize(_) => 1,
            Self::NarrowMatMul(op) => op.operands(),
            _ => 2,
        }
    }
}

impl NodeSpec {
    /// Returns a key for looking up a node's time: the op with all its parameters and tensors. Two nodes with equal
    /// keys take equal time on equal devices.
    pub fn key(&self) -> String {
        let tensors = |specs: &[TensorSpec]| specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let parameters = match &self.op {
            Op::Map(map) => map.expression.to_string(),
            op => format!("{op:?}"),
        };
        format!("{}({})->{} {parameters}", self.op.name(), tensors(&self.inputs), tensors(&self.outputs))
    }
}

/// Creates the spec of an `f32` tensor for a test.
#[cfg(test)]
fn spec(dims: &[usize]) -> TensorSpec {
    TensorSpec::new(crate::DType::F32, crate::Shape::new(dims).expect("a test's shape is small"))
}
