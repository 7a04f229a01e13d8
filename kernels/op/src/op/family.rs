//! Kernel classes: nodes that the same kernels compute, and the quantities in which their times are about linear.
//!
//! A node's time is predicted from those of other nodes of its class. A fit to measured times gives the device's
//! seconds per unit of each quantity. The kernels determine the quantities: what they multiply, copy or pack, and what
//! they start repeatedly.

use super::shallow::{Across, PANEL};
use super::{
    Binary, Conv, Domain, Expression, IntegerConv, Interpolation, MatMul, NarrowMatMul, NodeSpec, Op, Precision,
    RecurrentKind, ReduceKind, Step, Unary, WinogradTile,
};
use crate::dtype::DType;
use crate::shape::merged;

/// Convolutions to at most this many pixels, with at least this many channels, have channels along vectors …
const SMALL_IMAGE: (f64, f64) = (64.0, 32.0);

/// … if their pixels do not fill vectors of this many elements.
const LANES: f64 = 16.0;

/// Elements of a row that are summed side by side.
const SIDE_BY_SIDE: f64 = 32.0;

/// Number of rows multiplied by narrow weights at once.
const NARROW_ROWS: f64 = 4.0;

/// Approximate bytes that a core's own cache holds.
const CACHE: f64 = (1 << 20) as f64;

/// Class of nodes whose times follow one linear model.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Name of the class, such as `conv pointwise`.
    pub name: &'static str,
    /// Quantities in which the time is about linear: operations, elements moved, rows begun. All nodes of the class
    /// have equally many.
    pub amounts: Vec<f64>,
}

/// Products of a stack of matrices.
struct Product {
    matrices: f64,
    rows: f64,
    depth: f64,
    columns: f64,
    /// Whether all products have the same right matrix, which makes them one product.
    shared: bool,
}

impl Product {
    /// Returns the elements of the right matrices.
    fn right(&self) -> f64 {
        self.matrices * self.depth * self.columns
    }
}

impl NodeSpec {
    /// Returns the node's class. O(number of tensors × rank + steps of its expression).
    pub fn family(&self) -> Family {
        let (name, mut amounts) = self.own_family();
        if self.op.has_epilogue() {
            let steps = self.op.epilogue().map_or([0.0; 2], steps);
            amounts.extend(steps.map(|steps| steps * self.written()));
        }
        // Shapes without elements lead to infinite or undefined quantities.
        amounts.iter_mut().for_each(|amount| *amount = if amount.is_finite() { *amount } else { 0.0 });
        Family { name, amounts }
    }

    /// Returns the class without what an epilogue adds.
    fn own_family(&self) -> (&'static str, Vec<f64>) {
        if let Some(name) = self.double_family() {
            let work = self.work();
            return (name, vec![work.flops, work.bytes()]);
        }
        let (read, written) = (self.read(0), self.written());
        match &self.op {
            Op::Map(map) => self.map_family(map.domain, &map.expression),
            Op::MatMul(op) => self.product_family(op),
            Op::NarrowMatMul(op) => self.narrow_family(op),
            Op::IntegerMatMul(_) => ("matmul integer", self.product_amounts(&self.product(false))),
            Op::IntegerConv(op) => {
                let depth = (1..4).map(|axis| self.size(1, axis)).product::<f64>();
                let (flops, maps) = (2.0 * written * depth, self.size(1, 0) / op.group as f64);
                if self.size(1, 1) <= 1.0 && maps <= IntegerConv::MOST_MAPS as f64 {
                    return ("conv integer depthwise", vec![flops, written, self.rows_written()]);
                }
                // Quads of the images are written first.
                ("conv integer", vec![flops, read, self.read(1), written])
            }
            Op::Conv(op) => self.conv_family(op),
            Op::ConvTranspose(_) => {
                // The weights are multiplied by the image, and the elements of the product are added to those of the
                // result.
                let spread = read * (1..4).map(|axis| self.size(1, axis)).product::<f64>();
                ("conv transposed", vec![2.0 * spread, spread / self.size(0, 1), written])
            }
            Op::Pool(op) => {
                let taken = written * (op.window[0] * op.window[1]) as f64;
                let width =
                    self.outputs.first().and_then(|output| output.shape.dims().last()).map_or(1.0, |w| *w as f64);
                // Windows that are near each other are joined as vectors, others element by element.
                let near = f64::from(u8::from(op.strides[1] <= 2));
                ("pool", vec![taken * near, taken * (1.0 - near), read, taken / width])
            }
            Op::Reduce(op) => {
                let rows = op.axes.last().is_some_and(|last| *last + 1 == self.rank());
                let summed = f64::from(u8::from(matches!(op.kind, ReduceKind::Sum | ReduceKind::Mean)));
                let mut amounts = vec![read * summed, read * (1.0 - summed), written];
                if rows {
                    amounts.push(summed * written * rest(read / written));
                }
                (if rows { "reduce rows" } else { "reduce columns" }, amounts)
            }
            Op::ArgReduce(op) => match op.axis + 1 == self.rank() {
                true => ("arg_reduce rows", vec![read, written]),
                false => ("arg_reduce columns", vec![read, written]),
            },
            Op::TopK(_) => ("top_k", vec![read, written]),
            Op::Running(_) => ("running", vec![read]),
            Op::Fourier(op) => ("fourier", vec![self.size(0, 0) * op.steps(), read, written]),
            Op::Scatter(_) => ("scatter", vec![self.bytes_written(), self.read(1), self.read(2)]),
            Op::Trees(_) => ("trees", vec![self.tree_steps(), read, written]),
            Op::Attention(_) => ("attention", vec![self.attention_flops(), self.attention_bytes(), written]),
            Op::Append(_) => ("append", vec![self.bytes_written(), self.read(1)]),
            Op::Length(_) => ("length", vec![read]),
            Op::Rotary(_) => ("rotary", vec![read, self.rows_written()]),
            Op::Softmax(op) => match op.axis + 1 == self.rank() {
                true => ("softmax rows", vec![read, read / self.size(0, op.axis)]),
                false => ("softmax columns", vec![read, read / self.size(0, op.axis)]),
            },
            Op::Normalize(op) => {
                let rows = self.before(op.axis);
                ("normalize", vec![read, rows, rows * rest(read / rows)])
            }
            Op::Resize(op) => {
                let taken = written * op.interpolation.neighbours();
                let [linear, cubic] = match op.interpolation {
                    Interpolation::Nearest(_) => [0.0, 0.0],
                    Interpolation::Linear => [taken, 0.0],
                    Interpolation::Cubic { .. } => [0.0, taken],
                };
                ("resize", vec![written, linear, cubic])
            }
            Op::Recurrent(op) => self.recurrent_family(op.kind),
            Op::Transpose(op) => {
                let strides = self.inputs.first().map_or(Vec::new(), |input| input.shape.strides());
                let stride = |axis: &usize| strides.get(*axis).map_or(0, |stride| *stride as isize);
                self.copy_family(&op.permutation.iter().map(stride).collect::<Vec<_>>())
            }
            Op::Slice(op) => match (self.inputs.first(), self.outputs.first()) {
                (Some(input), Some(output)) => self.copy_family(&op.source(&input.shape, &output.shape).1),
                _ => self.copy_family(&[]),
            },
            Op::Concat(op) => ("concat", vec![self.bytes_written(), self.before(op.axis) * self.inputs.len() as f64]),
            Op::Pad(_) => ("pad", vec![self.bytes_written(), self.rows_written()]),
            Op::Gather(op) if op.elementwise => ("gather elements", vec![self.bytes_written(), written]),
            Op::Gather(op) => {
                let slices = self.before(op.axis) * self.read(1);
                ("gather", vec![self.bytes_written(), slices])
            }
            Op::Block(block) => ("block", vec![self.work().flops, self.work().bytes(), block.members.len() as f64]),
        }
    }

    /// Returns the class of the `f64` kernels, one for each op.
    fn double_family(&self) -> Option<&'static str> {
        let name = match &self.op {
            Op::MatMul(_) => "matmul double",
            Op::Conv(_) | Op::ConvTranspose(_) => "conv double",
            Op::Pool(_) => "pool double",
            Op::Reduce(_) => "reduce double",
            Op::Softmax(_) => "softmax double",
            Op::Normalize(_) => "normalize double",
            Op::Resize(_) => "resize double",
            Op::Recurrent(_) => "recurrent double",
            _ => return None,
        };
        self.is_f64().then_some(name)
    }

    /// Returns simple and expensive steps, bytes, bytes beyond a cache, and rows. Along a row every operand is a single
    /// value or consecutive.
    fn map_family(&self, domain: Domain, expression: &Expression) -> (&'static str, Vec<f64>) {
        let tensors = || self.inputs.iter().chain(&self.outputs);
        let plain = domain == Domain::F32 && tensors().all(|tensor| tensor.dtype == DType::F32);
        let bytes = tensors().map(|tensor| tensor.bytes() as f64).sum();
        let [simple, dear] = steps(expression).map(|steps| steps * self.written());
        let rows = self.written() / self.broadcast_row();
        (if plain { "map" } else { "map converted" }, vec![simple, dear, bytes, beyond_caches(bytes), rows])
    }

    /// Returns the number of output elements along which each input is a single value or consecutive.
    fn broadcast_row(&self) -> f64 {
        let Some(output) = self.outputs.first().map(|output| &output.shape) else { return 1.0 };
        let strides: Result<Vec<_>, _> =
            self.inputs.iter().map(|input| input.shape.broadcast_strides(output)).collect();
        let strides = strides.unwrap_or_default();
        let axes = output.dims().iter().enumerate();
        let axes = axes.map(|(axis, size)| (*size, strides.iter().map(|s| s[axis]).collect::<Vec<_>>()));
        let joined = merged(axes, |outer, inner, size| outer.iter().zip(inner).all(|(o, i)| *o == i * size));
        joined.last().map_or(1.0, |(size, _)| *size as f64)
    }

    fn product_family(&self, op: &MatMul) -> (&'static str, Vec<f64>) {
        if !self.is_f32() {
            let work = self.work();
            return ("matmul modular", vec![work.flops, work.bytes()]);
        }
        let product = self.product(op.transpose_a);
        let name = match (product.rows <= 1.0, product.columns <= 1.0, product.shared) {
            (true, false, true) => "matmul row",
            (true, ..) | (_, true, _) => "matmul vector",
            (.., shared) => {
                let sizes = [product.rows, product.columns, product.depth].map(|size| size as usize);
                let name = match (op.precision.of_product(sizes), shared) {
                    (Precision::F32, true) => "matmul",
                    (Precision::F32, false) => "matmul batched",
                    (Precision::F16x3, true) => "matmul f16x3",
                    (Precision::F16x3, false) => "matmul batched f16x3",
                    (Precision::F16, true) => "matmul f16",
                    (Precision::F16, false) => "matmul batched f16",
                };
                if !shared {
                    return (name, self.batched_amounts(&product, op.transpose_b));
                }
                name
            }
        };
        (name, self.product_amounts(&product))
    }

    /// Returns the product of the first two inputs. Products that share their right matrix are one product.
    fn product(&self, transpose_a: bool) -> Product {
        let back = |tensor: usize, back: usize| {
            let dims = self.inputs.get(tensor).map_or(&[][..], |input| input.shape.dims());
            dims.len().checked_sub(back).map_or(0.0, |axis| dims[axis] as f64)
        };
        let (own, depth) = if transpose_a { (back(0, 1), back(0, 2)) } else { (back(0, 2), back(0, 1)) };
        let right = back(1, 1) * back(1, 2);
        let columns = right / depth;
        let shared = !transpose_a && self.read(1) <= right;
        let rows = if shared { self.written() / columns } else { own };
        Product { matrices: self.written() / columns / rows, rows, depth, columns, shared }
    }

    /// Returns operations, the elements of the left matrix, the right matrices and the result, and the bytes of the
    /// right matrices beyond a cache.
    fn product_amounts(&self, product: &Product) -> Vec<f64> {
        let (right, written) = (product.right(), self.written());
        vec![2.0 * written * product.depth, self.read(0), right, written, beyond_caches(4.0 * right)]
    }

    /// Returns six quantities: operations of whole vectors of columns, because empty lanes take as long; the elements
    /// of the left matrices, of transposed right matrices, and of the result; the number of matrices, each of which has
    /// a start-up time; the bytes of the right matrices beyond a cache.
    fn batched_amounts(&self, product: &Product, transpose_b: bool) -> Vec<f64> {
        let Product { matrices, rows, depth, columns, .. } = *product;
        let whole = 2.0 * matrices * rows * depth * (columns / LANES).ceil() * LANES;
        let turned = if transpose_b { product.right() } else { 0.0 };
        vec![whole, self.read(0), turned, self.written(), matrices, beyond_caches(4.0 * product.right())]
    }

    /// Returns operations, elements of the matrices and of the result, and the bytes of the weights beyond a cache.
    fn narrow_family(&self, op: &NarrowMatMul) -> (&'static str, Vec<f64>) {
        let (rows, depth) = (self.size(0, 0), self.size(0, 1));
        let weights = self.written() / rows * depth;
        let bytes = self.inputs.get(1).map_or(0.0, |input| input.bytes() as f64);
        let name = match (rows <= NARROW_ROWS, op.quantize_a) {
            (true, false) => "matmul narrow row",
            (false, false) => "matmul narrow",
            (true, true) => "matmul quantized row",
            (false, true) => "matmul quantized",
        };
        let amounts = vec![2.0 * rows * weights, self.read(0), weights, self.written(), beyond_caches(bytes)];
        (name, amounts)
    }

    /// Returns the class of a convolution. Most are matrix products with these quantities: operations, elements of the
    /// windows that are written as the right matrices, runs in which the windows are written, weights, image and
    /// result.
    fn conv_family(&self, op: &Conv) -> (&'static str, Vec<f64>) {
        let [channels, maps, group] = [self.size(0, 1), self.size(1, 0), op.group as f64];
        let (taps, images) = (self.size(1, 2) * self.size(1, 3), self.size(0, 0));
        let pixels = self.written() / images / maps;
        let depth = self.size(1, 1) * taps;
        let (flops, windows) = (2.0 * self.written() * depth, images * group * depth * pixels);
        if group == channels && (channels > 1.0 || maps == 1.0) {
            let (window, wide) = ([self.size(1, 2), self.size(1, 3)], self.outputs[0].shape.dims()[3]);
            let common = window == [3.0; 2] || window == [5.0; 2];
            let name = match (common, (4..=8).contains(&wide) && self.size(0, 3) <= LANES) {
                (true, true) => "conv depthwise narrow",
                // The kernel reads windows in place if they have few elements, or if several outputs share their rows.
                _ if taps <= 9.0 || common && op.strides[0] == op.strides[1] && op.strides[0] <= 2 => "conv depthwise",
                _ => "conv depthwise other",
            };
            return (name, vec![flops, self.read(0), self.written(), self.rows_written()]);
        }
        if let Some(winograd_tile) = WinogradTile::of(op, self) {
            return ("conv filtered", self.filtered_amounts(winograd_tile, group, flops));
        }
        let (image, written) = (self.read(0), self.written());
        let amounts = vec![flops, windows, self.read(1), image, written];
        match op.shallow(self) {
            Some(Across::Pixels) => return ("conv shallow", vec![self.whole_flops(op, depth), image, written]),
            Some(Across::Maps) => return ("conv grouped", amounts),
            None => {}
        }
        let small = pixels <= SMALL_IMAGE.0 && maps / group >= SMALL_IMAGE.1 && pixels % LANES > 0.0;
        let pointwise = taps == 1.0 && op.strides == [1, 1];
        match (small, pointwise, group > 1.0) {
            (true, ..) => {
                // The kernel reads the image itself, or windows in whole vectors.
                let whole = images * group * depth * (pixels / LANES).ceil() * LANES;
                let windows = if pointwise && op.pads == [0; 4] { 0.0 } else { whole };
                ("conv small", vec![flops, windows, self.read(1), written])
            }
            (_, true, _) => ("conv pointwise", amounts),
            (.., true) => ("conv grouped other", amounts),
            (.., false) => {
                let runs = images * taps * self.runs(pixels);
                ("conv windows", vec![flops, windows, runs, self.read(1), image, written])
            }
        }
    }

    /// Returns the operations of whole vectors of a row's outputs and whole panels of output channels, or half a panel.
    /// Empty lanes take as long as full ones.
    fn whole_flops(&self, op: &Conv, depth: f64) -> f64 {
        let [images, maps, high, wide] = [0, 1, 2, 3].map(|axis| self.outputs[0].shape.dims()[axis] as f64);
        let (groups, whole) = (op.group as f64, |count: f64, of: f64| (count / of).ceil() * of);
        let (maps, panel) = (maps / groups, PANEL as f64);
        let maps = if maps <= panel / 2.0 { panel / 2.0 } else { whole(maps, panel) };
        2.0 * images * groups * maps * depth * high * whole(wide, LANES)
    }

    /// Returns the number of runs of pixels that lie in one row of the output and in one vector. The kernel finds the
    /// source of each run again for each element of the window.
    fn runs(&self, pixels: f64) -> f64 {
        let wide = self.outputs[0].shape.dims()[3];
        let common = LANES * wide as f64 / f64::from(1 << wide.trailing_zeros().min(LANES.log2() as u32));
        // A run begins at the start of a row or of a vector.
        (pixels / LANES).ceil() + pixels / wide as f64 - (pixels / common).ceil()
    }

    /// Returns the operations of the products at all positions, the values of tiles' channels and of their output
    /// channels, and the weights. The last quantity is the operations of direct convolution, which GPUs compute.
    fn filtered_amounts(&self, winograd_tile: WinogradTile, group: f64, flops: f64) -> Vec<f64> {
        let [images, maps, high, wide] = [0, 1, 2, 3].map(|axis| self.outputs[0].shape.dims()[axis]);
        let values = winograd_tile.positions() as f64 * winograd_tile.tiles(images, [high, wide]) as f64;
        let [channels, maps] = [self.size(0, 1), maps as f64];
        let weights = winograd_tile.positions() as f64 * channels * maps / group;
        vec![2.0 * values * channels * maps / group, values * channels, values * maps, weights, flops]
    }

    /// Returns operations, gates, the weights of all steps, the steps, and the bytes of all steps' weights beyond a
    /// cache.
    fn recurrent_family(&self, kind: RecurrentKind) -> (&'static str, Vec<f64>) {
        let name = if kind == RecurrentKind::Lstm { "lstm" } else { "gru" };
        let steps = self.size(0, 0);
        let far = steps * beyond_caches(4.0 * self.read(1));
        (name, vec![self.work().flops, self.read(0), steps * self.read(1), steps, far])
    }

    /// Returns the class of a copy whose input has these strides along the output's axes: bytes, and runs that are
    /// copied at once.
    fn copy_family(&self, strides: &[isize]) -> (&'static str, Vec<f64>) {
        let dims = self.outputs.first().map_or(&[][..], |output| output.shape.dims()).iter().copied();
        let axes = merged(dims.zip(strides.iter().copied()), |outer, inner, size| *outer == inner * size as isize);
        let (name, run) = match axes.as_slice() {
            [.., (rows, 1), (columns, stride)] if *stride != 1 => ("copy transposed", rows * columns),
            [.., (_, stride)] if *stride != 1 => ("copy apart", 1),
            [.., (run, _)] => ("copy", *run),
            [] => ("copy", 1),
        };
        (name, vec![self.bytes_written(), self.written() / run as f64])
    }

    /// Returns the size of an input along an axis, or 0 if there is no such axis.
    pub(super) fn size(&self, input: usize, axis: usize) -> f64 {
        self.inputs.get(input).and_then(|spec| spec.shape.dims().get(axis)).map_or(0.0, |size| *size as f64)
    }

    fn rank(&self) -> usize {
        self.inputs.first().map_or(0, |input| input.shape.rank())
    }

    /// Returns the number of elements of an input.
    fn read(&self, input: usize) -> f64 {
        self.inputs.get(input).map_or(0.0, |input| input.shape.elements() as f64)
    }

    /// Returns the number of elements of the first output.
    fn written(&self) -> f64 {
        self.outputs.first().map_or(0.0, |output| output.shape.elements() as f64)
    }

    fn bytes_written(&self) -> f64 {
        self.outputs.first().map_or(0.0, |output| output.bytes() as f64)
    }

    fn rows_written(&self) -> f64 {
        let last = self.outputs.first().and_then(|output| output.shape.dims().last());
        self.written() / last.map_or(1.0, |size| *size as f64)
    }

    /// Returns the number of positions along the axes of the first input before this axis.
    fn before(&self, axis: usize) -> f64 {
        (0..axis).map(|axis| self.size(0, axis)).product()
    }
}

/// Returns the elements of a row after its last whole block of side-by-side sums. They take as long as a block, or
/// longer.
fn rest(row: f64) -> f64 {
    row % SIDE_BY_SIDE
}

/// Returns the bytes that do not fit into a core's own cache.
fn beyond_caches(bytes: f64) -> f64 {
    (bytes - CACHE).max(0.0)
}

/// Returns the number of simple steps and of expensive steps. An expensive step is a series instead of an instruction.
fn steps(expression: &Expression) -> [f64; 2] {
    use Unary::{
        Abs, Ceil, Floor, IsInfinite, IsNan, Narrowed, Negate, Not, Reciprocal, Relu, Round, Sign, Sqrt, Truncate,
    };
    let dear = |step: &&Step| match step {
        Step::Constant(_) | Step::Select(..) => false,
        Step::Unary(function, _) => !matches!(
            function,
            Abs | Ceil
                | Floor
                | IsInfinite
                | IsNan
                | Narrowed(_)
                | Negate
                | Not
                | Reciprocal
                | Relu
                | Round
                | Sign
                | Sqrt
                | Truncate
        ),
        Step::Binary(function, ..) => {
            matches!(function, Binary::Power | Binary::FloorModulo | Binary::TruncatedModulo)
        }
    };
    let all = expression.steps();
    let dear = all.iter().filter(dear).count();
    let constants = all.iter().filter(|step| matches!(step, Step::Constant(_))).count();
    [(all.len() - dear - constants) as f64, dear as f64]
}

#[cfg(test)]
mod tests;
