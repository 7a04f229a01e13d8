//! Parameters of each op. Axes are indices from the outermost; all shapes are known from the node's tensors.
//!
//! If an op says *floats*, all its tensors are `f32`, or all are `f64`. In `f64` an op has no epilogue, and only CPUs
//! have kernels.

use super::{Expression, Literal, Precision};
use serde::{Deserialize, Serialize};
use std::fmt;

/// `C = A · B` over batches.
///
/// Inputs: A `[…, m, k]` (or `[…, k, m]` if `transpose_a`), B `[…, k, n]` (or `[…, n, k]` if `transpose_b`), both of
/// rank ≥ 2, with broadcast batch dimensions; then the epilogue's. Output: `[…, m, n]`. Floats; on CPUs also `i32`,
/// `u32`, `i64` or `u64`, exact modulo 2ⁿ, without an epilogue.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MatMul {
    /// A is stored transposed.
    pub transpose_a: bool,
    /// B is stored transposed.
    pub transpose_b: bool,
    /// Expression applied to each element of the product.
    pub epilogue: Option<Expression>,
    /// Arithmetic of GPUs with matrix units. CPUs always compute `f32` in `f32`.
    #[serde(default, skip_serializing_if = "Precision::is_full")]
    pub precision: Precision,
}

/// Formats the parameters; the usual precision is left out, so that keys of stored times do not change.
impl fmt::Debug for MatMul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transpose_a, transpose_b, epilogue, precision } = self;
        let mut fields = f.debug_struct("MatMul");
        fields.field("transpose_a", transpose_a).field("transpose_b", transpose_b).field("epilogue", epilogue);
        if !precision.is_full() {
            fields.field("precision", precision);
        }
        fields.finish()
    }
}

/// Storage format of the weights of a [`NarrowMatMul`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NarrowFormat {
    /// 16-bit floats, of the type of the weights' tensor.
    Float,
    /// Integers `q` on a grid, which stand for `(q − zero point) · scale`.
    Grid {
        /// Bits of an integer: 2, 4 or 8, packed into bytes from the lowest bits.
        bits: usize,
        /// Consecutive elements of the depth that share a scale and a zero point.
        block: usize,
        /// Whether zero points are given; without them they are `2^(bits − 1)`.
        zero_points: bool,
    },
}

/// `C = A · B` with constants B of fewer bits than an `f32`, which are widened as they are read.
///
/// Inputs:
/// - A `[m, k]` `f32`.
/// - B `[k, n]`, or `[n, k]` if `transpose_b`: `f16` or `bf16`, or `u8` with the integers of a grid. Rows with less
///   than 8 bits lie along the depth (`transpose_b`) and may be longer than `k` needs.
/// - For a grid, the scales `[n, ⌈k / block⌉]` and then the zero points if there are any, both `f32`.
/// - The epilogue's inputs.
///
/// Output: `[m, n]` `f32`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NarrowMatMul {
    /// Storage format of B's numbers.
    pub format: NarrowFormat,
    /// B is stored transposed.
    pub transpose_b: bool,
    /// On CPUs, A is rounded to 8-bit integers before it is multiplied. Each block of each of its rows has a scale: the
    /// greatest magnitude over 127 or, if that is less, 2⁻¹²⁶. The error of an element of A is at most half of the
    /// scale, and a hundred thousandth of it for the rounding of the quotient. The scale of a block with elements that
    /// are not finite is NaN. Weights have 4 bits, in blocks of a multiple of 8 up to [`Self::GREATEST_BLOCK`], and a
    /// line of B has a multiple of 4 bytes. GPUs multiply A as it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quantize_a: bool,
    /// Expression applied to each element of the product.
    pub epilogue: Option<Expression>,
}

impl NarrowMatMul {
    /// Greatest block with [`Self::quantize_a`]: its sum, at most 15 · 127 · 8,192, is exact in `f32`.
    pub const GREATEST_BLOCK: usize = 8192;

    /// Returns the number of inputs before the epilogue's.
    #[doc(hidden)]
    pub const fn operands(&self) -> usize {
        match self.format {
            NarrowFormat::Float => 2,
            NarrowFormat::Grid { zero_points, .. } => 3 + zero_points as usize,
        }
    }

    /// Returns the bits of a weight.
    #[doc(hidden)]
    pub const fn bits(&self) -> usize {
        match self.format {
            NarrowFormat::Float => 16,
            NarrowFormat::Grid { bits, .. } => bits,
        }
    }
}

/// `C = A · (B − z) + s` over batches of 8-bit integers, exact modulo 2³².
///
/// Inputs: A `[…, m, k]` and B `[…, k, n]`, each `u8` or `i8`, with broadcast batch dimensions; a summand s, and with
/// `zero_points` a zero point z, both `i32`, for each column of each of B's matrices; then those of `rounding`.
/// Output: `[…, m, n]`, `i32` unless `rounding` says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntegerMatMul {
    /// B has zero points.
    pub zero_points: bool,
    /// Rounding of the sums to 8 bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounding: Option<Rounding>,
}

/// Rounds each exact sum x of a product of integers to the grid of an output of 8 bits.
///
/// The output is `round(x · scale + offset) + zero point`, cut to the range. It is computed in `f64`, and halves are
/// rounded to even numbers; NaN becomes 0. Inputs: a scale and an offset, both `f64`, for each summand of the product,
/// and one zero point of the output's type, `u8` or `i8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rounding {
    /// Least output.
    pub least: i16,
    /// Greatest output.
    pub greatest: i16,
}

impl Rounding {
    /// Number of inputs that a rounding adds.
    #[doc(hidden)]
    pub const INPUTS: usize = 3;
}

/// Two-dimensional cross-correlation of 8-bit integers, exact modulo 2³²: `Σ x · (w − z) + s`.
///
/// Inputs: X `[n, c, h, w]` and W `[m, c / group, kh, kw]`, each `u8` or `i8`; a summand s, and with `zero_points` a
/// zero point z, both `i32`, for each of the m output channels; then those of `rounding`. Output: `[n, m, oh, ow]`,
/// `i32` unless `rounding` says otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntegerConv {
    /// Step of the window in rows and columns, ≥ 1.
    pub strides: [usize; 2],
    /// Rows and columns of `border` added above, left, below, right.
    pub pads: [usize; 4],
    /// Distance of the window's elements in rows and columns, ≥ 1.
    pub dilations: [usize; 2],
    /// Number of groups; divides both channel counts.
    pub group: usize,
    /// Number in the border around X, of X's type.
    pub border: i16,
    /// W has zero points.
    pub zero_points: bool,
    /// Rounding of the sums to 8 bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounding: Option<Rounding>,
}

impl IntegerConv {
    /// Maximum output channels of an input channel that is convolved by itself: more are rows of a product.
    #[doc(hidden)]
    pub const MOST_MAPS: usize = 4;
}

/// Two-dimensional cross-correlation, which networks call convolution.
///
/// Inputs: X `[n, c, h, w]`, W `[m, c / group, kh, kw]`, then the epilogue's. Output: `[n, m, oh, ow]`. Floats.
/// One-dimensional convolution is lowered to `h = kh = 1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conv {
    /// Step of the window in rows and columns, ≥ 1.
    pub strides: [usize; 2],
    /// Rows and columns of zeros added above, left, below, right.
    pub pads: [usize; 4],
    /// Distance of the window's elements in rows and columns, ≥ 1.
    pub dilations: [usize; 2],
    /// Number of groups; divides both channel counts. Equal to `c` for a depthwise convolution.
    pub group: usize,
    /// Expression applied to each element of the result.
    pub epilogue: Option<Expression>,
}

/// Two-dimensional transposed convolution (the gradient of [`Conv`] with respect to its input).
///
/// Inputs: X `[n, c, h, w]`, W `[c, m / group, kh, kw]`, then the epilogue's. Output: `[n, m, oh, ow]`, whose size the
/// node gives. Floats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvTranspose {
    /// Distance between neighbouring inputs in the output, in rows and columns, ≥ 1.
    pub strides: [usize; 2],
    /// Rows and columns cut from the full result above, left, below, right.
    pub pads: [usize; 4],
    /// Distance of the window's elements in rows and columns, ≥ 1.
    pub dilations: [usize; 2],
    /// Number of groups; divides both channel counts.
    pub group: usize,
    /// Expression applied to each element of the result.
    pub epilogue: Option<Expression>,
}

/// Function that makes one element from a pooling window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// Greatest element; NaN if any is NaN.
    Max,
    /// Mean; padding counts as zeros if `count_padding`, else it does not count.
    Average {
        /// Whether the divisor counts padded elements.
        count_padding: bool,
    },
}

/// Two-dimensional pooling.
///
/// Input: X `[n, c, h, w]`. Output: `[n, c, oh, ow]`. Floats. A window may reach beyond the padded input at the end
/// (ONNX's `ceil_mode`); elements beyond it never count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// Function that makes one element from the window.
    pub kind: PoolKind,
    /// Rows and columns of the window.
    pub window: [usize; 2],
    /// Step of the window in rows and columns, ≥ 1.
    pub strides: [usize; 2],
    /// Padding above, left, below, right.
    pub pads: [usize; 4],
    /// Distance of the window's elements in rows and columns, ≥ 1.
    pub dilations: [usize; 2],
}

/// Function that a reduction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReduceKind {
    /// Sum.
    Sum,
    /// Arithmetic mean.
    Mean,
    /// Greatest; NaN if any is NaN.
    Max,
    /// Least; NaN if any is NaN.
    Min,
    /// Product.
    Product,
    /// Sum of squares.
    SumOfSquares,
    /// Sum of absolute values.
    SumOfMagnitudes,
    /// `ln Σ exp x`, computed without overflow.
    LogSumExp,
}

/// Reduction over axes.
///
/// Input: X (`f32`; `f64`, `i32`, `i64` and `u64` on the CPU). Integers wrap, except that their mean is exact and
/// rounds towards zero. Output: X's type. Its elements are those of X's remaining axes in order; only the element count
/// is read, so kept axes of size 1 do not matter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduce {
    /// Function of the reduction.
    pub kind: ReduceKind,
    /// Reduced axes, ascending, without repeats.
    pub axes: Vec<usize>,
}

/// Index of the greatest or least element along an axis. Input: X of any number type. Output: `i64`, X's other axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArgReduce {
    /// Axis that is searched.
    pub axis: usize,
    /// Searches for the greatest element instead of the least.
    pub greatest: bool,
    /// Takes the last of equal elements instead of the first.
    pub last: bool,
}

/// Greatest or least elements along an axis, in order.
///
/// Equal elements keep their order, and NaN is the greatest. Input: X of any number type. Outputs: the elements, of X's
/// type, and their indices, `i64`; the size of the outputs along the axis is the number of elements that are selected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopK {
    /// Axis that is searched.
    pub axis: usize,
    /// Searches for the greatest elements instead of the least.
    pub largest: bool,
}

/// Running sums or products along an axis. Input: X of any number type. Output: as many elements as X, of X's type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// Axis along which elements are joined.
    pub axis: usize,
    /// Computes products instead of sums.
    pub multiply: bool,
    /// Runs from the end of the axis to its start.
    pub reverse: bool,
    /// Leaves each element out of its own result.
    pub exclusive: bool,
}

/// Discrete Fourier transforms of lines.
///
/// Input: X `[lines, elements, parts]`, `f32` or `f64`. The parts are the real part, or the real and the imaginary
/// part; zeros follow the elements. Output: `[lines, made, 2]` of X's type, the first elements of each transform.
/// Inverse: `[lines, made, 1]`, the signal whose spectrum begins with X and is conjugate-symmetric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fourier {
    /// Number of elements of a transform.
    pub length: usize,
    /// Whether the transform is the inverse, which is divided by the length.
    pub inverse: bool,
}

impl Fourier {
    /// Returns the approximate number of butterflies of a transform: n log₂ n.
    pub(crate) fn steps(&self) -> f64 {
        let length = self.length as f64;
        length * length.max(2.0).log2()
    }
}

/// Function that combines an old element and an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScatterKind {
    /// The update.
    Replace,
    /// Their sum.
    Add,
    /// Their product.
    Multiply,
    /// The lesser; NaN if one is NaN.
    Min,
    /// The greater; NaN if one is NaN.
    Max,
}

/// Slices replaced or combined, one update after the other.
///
/// Inputs: X `[count, …]` of any type, `i64` positions, each in `0..count`, and updates of X's type, one slice per
/// position. Output: X's elements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scatter {
    /// Function that combines old elements and updates.
    pub kind: ScatterKind,
}

/// Softmax along one axis. The output has as many elements as the input; floats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Softmax {
    /// Axis along which the result sums to 1.
    pub axis: usize,
    /// Returns the logarithm of the softmax instead.
    pub log: bool,
}

/// `(x − mean) / √(variance + ε)` over all axes from `axis` on.
///
/// Inputs: X, then the epilogue's, which hold scale and bias. Output: X's elements, floats. The epilogue's operands are
/// broadcast to the *output's* shape.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Normalize {
    /// First of the axes that are normalised together.
    pub axis: usize,
    /// Number added to the variance (or the mean square).
    pub epsilon: f32,
    /// Subtracts the mean; without it this is the root-mean-square norm `x / √(mean(x²) + ε)`.
    pub center: bool,
    /// Expression applied to each element of the result.
    pub epilogue: Option<Expression>,
}

/// Cell of a recurrent layer, with ONNX's gate orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecurrentKind {
    /// One gate, whose argument passes tanh and becomes the state.
    Rnn,
    /// Gates z, r, h.
    Gru {
        /// Applies the reset gate after the product with the recurrent weights.
        linear_before_reset: bool,
    },
    /// Gates i, o, f, c.
    Lstm,
}

impl RecurrentKind {
    /// Returns the number of gates.
    pub const fn gates(self) -> usize {
        match self {
            Self::Rnn => 1,
            Self::Gru { .. } => 3,
            Self::Lstm => 4,
        }
    }

    /// Returns the number of tensors that pass from one time step to the next: h, and for an LSTM c.
    pub const fn states(self) -> usize {
        if matches!(self, Self::Lstm) { 2 } else { 1 }
    }
}

/// One direction of a recurrent layer, with sigmoid and tanh activations.
///
/// The product of the inputs with the weights is computed before, as a [`MatMul`]. There are `g` = 1 (RNN), 3 (GRU) or
/// 4 (LSTM) gates and `u` units. Inputs: P `[t, b, g·u]` (`X·Wᵀ` plus the input bias), R `[g·u, u]`, the recurrent bias
/// `[g·u]`, h₀ `[b, u]`, and for an LSTM c₀ `[b, u]`. Outputs: Y `[t, b, u]`, the last h `[b, u]`, and for an LSTM the
/// last c `[b, u]`. Floats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recurrent {
    /// Kind of the cell.
    pub kind: RecurrentKind,
    /// Runs from the last time step to the first; Y stays in input order.
    pub reverse: bool,
    /// Greatest magnitude of the arguments of sigmoid and tanh, a finite number above 0. NaN stays NaN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<f32>,
    /// Whether an LSTM's forget gate is one minus its input gate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub coupled: bool,
}

impl Recurrent {
    /// Returns a layer that runs forwards, without clipped arguments or coupled gates.
    pub const fn new(kind: RecurrentKind) -> Self {
        Self { kind, reverse: false, clip: None, coupled: false }
    }
}

/// Permutation of axes: output axis `i` is input axis `permutation[i]`. Any type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transpose {
    /// A permutation of `0..rank`.
    pub permutation: Vec<usize>,
}

/// Concatenation of one or more inputs along an axis. Any type, the same for all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Concat {
    /// Axis along which sizes add up.
    pub axis: usize,
}

/// Strided sub-tensor: output index `i` along an axis reads input index `start + i · step`. Any type. Both lists have
/// the input's rank; every index that is read is within the input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// First index along each axis.
    pub starts: Vec<usize>,
    /// Step along each axis, not 0; may be negative.
    pub steps: Vec<isize>,
}

/// Content of a border.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PadMode {
    /// One value, converted to the tensor's type.
    Constant(Literal),
    /// Elements mirrored at the edge; the edge itself is not repeated.
    Reflect,
    /// Element at the edge.
    Edge,
    /// Elements from the other end on, as if the tensor was repeated.
    Wrap,
}

impl PadMode {
    /// Zeros.
    pub const ZERO: Self = Self::Constant(Literal::Float(0.0));
}

/// Border around a tensor: output index `i` along an axis stands for input index `i − before`. Any type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pad {
    /// Content of the border.
    pub mode: PadMode,
    /// Number of elements added before the first along each axis; a negative number cuts. The output's shape gives what
    /// is added after.
    pub before: Vec<isize>,
}

/// Slices chosen along an axis. Inputs: X of any type, indices (`i32` or `i64`, negative counts from the end).
/// Output: X's shape with `axis` replaced by the indices' shape (only element counts before and after it matter).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gather {
    /// Axis along which the indices choose.
    pub axis: usize,
    /// ONNX GatherElements instead: indices have X's rank, and each chooses one element.
    pub elementwise: bool,
}
