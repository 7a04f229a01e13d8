//! Numbers narrower than `f32`, which models widen before they compute with them: the source of each widened value is
//! remembered.
//!
//! Constant matrices whose widening by Cast or DequantizeLinear is folded stay in their narrow form if a product reads
//! them, and the kernel widens them. If both sides of a product are integers on grids, the product is computed in
//! integers.

use super::builder::Builder;
use super::compose::Epilogue;
use super::view::View;
use crate::host_operators::Fault;
use anabranch_ir::constant::LARGE;
use anabranch_ir::program::{ModelOperator, ValueId};
use anabranch_kernels::op::{Binary, Domain, NarrowFormat, NarrowMatMul, Op};
use anabranch_kernels::{DType, Shape, TensorSpec};
use std::collections::BTreeMap;

/// Maximum parts of a joined value that are put on a grid one by one.
const MOST_PARTS: usize = 64;

/// Narrow sources of widened values.
#[derive(Debug, Default)]
pub(crate) struct Narrow(BTreeMap<ValueId, Source>);

/// Source of a widened value.
#[derive(Clone, Debug)]
enum Source {
    /// 16-bit floats.
    Floats(View),
    Grid(Grid),
    Sums(ScaledSums),
    Parts(Vec<View>, usize),
}

/// Exact sums of a product of integers, which stand for `sum · scale + offset`, or for the nearest number within
/// bounds. Scale and offset are `f64`, and broadcast to the sums.
#[derive(Clone, Debug)]
pub(crate) struct ScaledSums {
    pub(crate) sums: View,
    pub(crate) scale: View,
    pub(crate) offset: Option<View>,
    pub(crate) bounds: [f64; 2],
    /// Operators that made the sums, scaled and bounded them.
    pub(crate) operators: Vec<ModelOperator>,
}

/// 8-bit integers that stand for `(integer − zero point) · scale`, with one scale and zero point for all elements, or
/// one for each index along an axis.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    pub(crate) integers: View,
    pub(crate) scale: View,
    pub(crate) zero_point: Option<View>,
    pub(crate) axis: usize,
}

impl Grid {
    /// Whether one scale and one zero point apply to all elements.
    pub(crate) fn is_uniform(&self) -> bool {
        [Some(&self.scale), self.zero_point.as_ref()].into_iter().flatten().all(|of| of.elements() == 1)
    }
}

impl Builder {
    /// Remembers that 16-bit floats were widened.
    pub(crate) fn remember_floats(&mut self, narrow: &View, wide: &View) {
        let half = matches!(narrow.dtype(), DType::F16 | DType::BF16) && wide.dtype() == DType::F32;
        if half && self.is_large_constant(narrow) && self.is_constant(wide) {
            self.narrow().0.insert(wide.value, Source::Floats(narrow.clone()));
        }
    }

    /// Remembers that 8-bit integers on a grid were widened, if its parameters are one number each, or one for each
    /// index along `axis`.
    ///
    /// Parameters of blocks may be as many, but have more than one dimension.
    pub(crate) fn remember_grid(
        &mut self,
        integers: &View,
        (scale, zero_point): (&View, Option<&View>),
        axis: usize,
        wide: &View,
    ) {
        let bytes = matches!(integers.dtype(), DType::U8 | DType::I8) && wide.dtype() == DType::F32;
        let each = integers.dims().get(axis);
        let fits = |of: &View| of.elements() == 1 || of.rank() == 1 && each == Some(&of.elements());
        if bytes && fits(scale) && zero_point.is_none_or(fits) {
            let (integers, scale, zero_point) = (integers.clone(), scale.clone(), zero_point.cloned());
            self.narrow().0.insert(wide.value, Source::Grid(Grid { integers, scale, zero_point, axis }));
        }
    }

    /// Remembers that the present operator made `result` of sums of integers.
    pub(crate) fn remember_sums(&mut self, result: &View, mut sums: ScaledSums) {
        sums.operators.push(self.operator().clone());
        self.narrow().0.insert(result.value, Source::Sums(sums));
    }

    /// Remembers that `result` are the numbers nearest to those of `x` within bounds, if `x` are sums of integers.
    pub(crate) fn remember_bounds(&mut self, x: &View, [least, greatest]: [f64; 2], result: &View) {
        if let Some(mut sums) = self.sums_of(x)
            && !least.is_nan()
            && !greatest.is_nan()
        {
            sums.bounds = sums.bounds.map(|bound| bound.max(least).min(greatest));
            self.remember_sums(result, sums);
        }
    }

    /// Remembers that `result` is `x` plus a constant, if `x` are sums of integers.
    pub(crate) fn remember_offset(&mut self, x: &View, offset: &View, result: &View) {
        if let Some(sums) = self.sums_of(x)
            && sums.offset.is_none()
            && x.dims() == result.dims()
            && sums.bounds == [f64::NEG_INFINITY, f64::INFINITY]
            && self.is_constant(offset)
        {
            self.remember_sums(result, ScaledSums { offset: Some(offset.clone()), ..sums });
        }
    }

    /// Returns the sums of integers that were scaled to `x`.
    pub(crate) fn sums_of(&mut self, x: &View) -> Option<ScaledSums> {
        match self.narrow().0.get(&x.value)? {
            Source::Sums(sums) => Some(sums.clone()),
            _ => None,
        }
    }

    /// Remembers that `joined` are these few parts, joined along an axis, if all were widened from grids.
    pub(crate) fn remember_parts(&mut self, parts: &[View], axis: usize, joined: &View) {
        // Without the parts that are empty, the whole may be one of them.
        let new = (2..=MOST_PARTS).contains(&parts.len()) && parts.iter().all(|part| part.value != joined.value);
        if self.integer_convolutions && new && parts.iter().all(|part| self.grid_of(part).is_some()) {
            self.narrow().0.insert(joined.value, Source::Parts(parts.to_vec(), axis));
        }
    }

    /// Returns the parts of `joined`, widened from grids, and the axis along which they were joined.
    pub(crate) fn parts_of(&mut self, joined: &View) -> Option<(Vec<View>, usize)> {
        let Source::Parts(parts, axis) = self.narrow().0.get(&joined.value)?.clone() else { return None };
        let length = parts.iter().map(|part| part.dims()[axis]).sum();
        let dims: Vec<_> =
            parts[0].dims().iter().enumerate().map(|(at, dim)| if at == axis { length } else { *dim }).collect();
        (dims == joined.dims()).then_some((parts, axis))
    }

    /// Returns the integers from which `wide` was widened, in its shape.
    pub(crate) fn grid_of(&mut self, wide: &View) -> Option<Grid> {
        let Source::Grid(grid) = self.narrow().0.get(&wide.value)?.clone() else { return None };
        if grid.integers.dims() == wide.dims() {
            return Some(grid);
        }
        // Another shape has other axes.
        let integers = grid.is_uniform().then(|| grid.integers.reshaped(wide.dims()).ok())??;
        Some(Grid { integers, ..grid })
    }

    fn is_large_constant(&self, view: &View) -> bool {
        self.is_constant(view) && view.spec.bytes() >= LARGE
    }

    /// Returns the product of `[m, k]` and a matrix `[k, n]`, or `[n, k]` if it is `transposed`, if the matrix was
    /// widened from a narrow type.
    pub(crate) fn narrow_product(
        &mut self,
        a: &View,
        (b, transposed): (&View, bool),
        epilogue: &Epilogue,
    ) -> Result<Option<View>, Fault> {
        let half = matches!(b.dtype(), DType::F16 | DType::BF16) && self.is_large_constant(b);
        let source = if half { Some(Source::Floats(b.clone())) } else { self.narrow().0.get(&b.value).cloned() };
        let (Some(source), &[first, second]) = (source, b.dims()) else { return Ok(None) };
        let (depth, columns) = if transposed { (second, first) } else { (first, second) };
        if self.is_constant(a) || depth == 0 || columns == 0 {
            return Ok(None);
        }
        let (format, mut inputs) = match source {
            Source::Sums(_) | Source::Parts(..) => return Ok(None),
            Source::Floats(floats) => (NarrowFormat::Float, vec![floats.reshaped([first, second])?]),
            Source::Grid(Grid { integers, scale, zero_point, axis }) => {
                let lines = usize::from(!transposed);
                let each = |of: &View| of.elements() > 1;
                let along = each(&scale) || zero_point.as_ref().is_some_and(each);
                let kept = self.is_large_constant(&integers) && self.is_constant(b) && integers.dims() == b.dims();
                if !kept || along && axis != lines {
                    return Ok(None);
                }
                let format = NarrowFormat::Grid { bits: 8, block: depth, zero_points: true };
                (format, self.grid(&integers, &scale, zero_point.as_ref(), columns)?)
            }
        };
        // Inputs that cannot be computed ahead would have to be packed in each run.
        if !inputs.iter().all(|input| self.is_constant(input)) {
            return Ok(None);
        }
        let op =
            NarrowMatMul { format, transpose_b: transposed, quantize_a: false, epilogue: epilogue.expression.clone() };
        inputs.insert(0, self.as_f32(a)?);
        inputs.extend(epilogue.operands.iter().cloned());
        let output = TensorSpec::new(DType::F32, Shape::new([a.dims()[0], columns])?);
        self.emit_one(Op::NarrowMatMul(op), &inputs, output).map(Some)
    }

    /// Returns the integers as unsigned integers, and the scale and the zero point of each column.
    fn grid(
        &mut self,
        integers: &View,
        scale: &View,
        zero_point: Option<&View>,
        columns: usize,
    ) -> Result<Vec<View>, Fault> {
        let signed = integers.dtype() == DType::I8;
        // The scale has its own type if the file states another type for the widened matrix.
        let scale = self.as_f32(scale)?;
        let each = Shape::new([columns, 1])?;
        let spread = |builder: &mut Self, of: &View| {
            let of = if of.elements() == 1 { of.reshaped(vec![])? } else { of.reshaped(vec![columns, 1])? };
            builder.expanded(&of, each.clone())
        };
        let zero = match zero_point {
            Some(zero_point) => self.as_f32(zero_point)?,
            None => self.scalar(DType::F32, 0.0)?,
        };
        let (mut integers, mut zero) = (integers.clone(), zero);
        if signed {
            integers = self.map(Domain::I64, [&integers], DType::U8, |[x]| x.with(Binary::Add, 128.0))?;
            zero = self.map(Domain::F32, [&zero], DType::F32, |[x]| x + 128.0)?;
        }
        Ok(vec![integers, spread(self, &scale)?, spread(self, &zero)?])
    }
}

#[cfg(test)]
mod tests {
    use super::super::fold::{Folding, compute};
    use super::*;
    use anabranch_kernels::Tensor;
    use half::f16;

    const SIZES: [usize; 3] = [3, 260, 300];

    fn spec(dims: &[usize]) -> TensorSpec {
        TensorSpec::new(DType::F32, Shape::new(dims).expect("small"))
    }

    fn tensor<T: anabranch_kernels::dtype::Element>(dims: &[usize], value: impl Fn(usize) -> T) -> Tensor {
        let shape = Shape::new(dims).expect("small");
        Tensor::from_elements(shape.clone(), &(0..shape.elements()).map(value).collect::<Vec<_>>()).expect("as many")
    }

    /// Requires that the product with `wide` reads bytes of a narrow type, and equals the product with the matrix that
    /// `number` gives.
    fn require(mut builder: Builder, wide: &View, transposed: bool, number: impl Fn(usize, usize) -> f32) {
        let [m, k, n] = SIZES;
        let x = builder.input("x", spec(&[m, k]));
        let product = builder.narrow_product(&x, (wide, transposed), &Epilogue::default()).expect("lowers");
        assert!(product.is_some_and(|product| product.dims() == [m, n]));
        let program = builder.program_mut();
        let node = program.nodes.last().expect("a node").clone();
        assert!(node.spec.inputs[1].dtype.size() < 4, "{:?}", node.spec);
        let x = tensor(&[m, k], |i| (i % 7) as f32 - 3.0);
        let constant = |input: &ValueId| program.constant(*input).map_or(x.clone(), |c| c.load().expect("in memory"));
        let inputs: Vec<_> = node.inputs.iter().map(constant).collect();
        let made = compute(&node.spec, &inputs, &vec![None; inputs.len()]).expect("runs");
        let x = x.elements::<f32>().expect("f32");
        for (at, found) in made[0].elements::<f32>().expect("f32").iter().enumerate() {
            let (i, j) = (at / n, at % n);
            let want: f32 = (0..k).map(|p| x[i * k + p] * number(p, j)).sum();
            assert!((found - want).abs() <= 1e-3 * (1.0 + want.abs()), "{found} rather than {want} at {i}, {j}");
        }
    }

    #[test]
    fn floats_that_were_widened_stay_narrow() {
        let [_, k, n] = SIZES;
        let value = |i: usize| f16::from_f32((i % 11) as f32 * 0.25 - 1.0);
        let mut builder = Builder::new(Folding::new(1 << 24));
        let half = builder.constant("w", tensor(&[k, n], value));
        let wide = builder.as_f32(&half).expect("folds");
        require(builder, &wide, false, |p, j| value(p * n + j).to_f32());
    }

    #[test]
    fn integers_on_a_grid_stay_narrow() {
        let [_, k, n] = SIZES;
        let value = |i: usize| (i % 251) as u8 as i8;
        for (transposed, each) in [(false, true), (true, true), (true, false)] {
            let mut builder = Builder::new(Folding::new(1 << 24));
            let dims = if transposed { [n, k] } else { [k, n] };
            let integers = builder.constant("q", tensor(&dims, value));
            let count = if each { n } else { 1 };
            let scale = builder.constant("s", tensor(&[count], |i| 0.01 + i as f32 * 1e-4));
            let zero = builder.constant("z", tensor(&[count], |i| (i % 5) as i8 - 2));
            // The product reads the remembered source, so that these elements do not matter.
            let wide = builder.constant("w", Tensor::zeroed(spec(&dims)));
            let axis = usize::from(!transposed);
            builder.remember_grid(&integers, (&scale, Some(&zero)), axis, &wide);
            require(builder, &wide, transposed, |p, j| {
                let number = f32::from(value(if transposed { j * k + p } else { p * n + j }));
                let column = if each { j } else { 0 };
                (number - ((column % 5) as f32 - 2.0)) * (0.01 + column as f32 * 1e-4)
            });
        }
    }

    #[test]
    fn one_narrow_scale_goes_with_a_zero_point_for_each_column() {
        let [_, k, n] = SIZES;
        let value = |i: usize| (i % 251) as u8;
        let mut builder = Builder::new(Folding::new(1 << 24));
        let integers = builder.constant("q", tensor(&[k, n], value));
        let scale = builder.constant("s", tensor(&[], |_| f16::from_f32(0.125)));
        let zero = builder.constant("z", tensor(&[n], |i| (i % 200) as u8));
        let wide = builder.constant("w", Tensor::zeroed(spec(&[k, n])));
        builder.remember_grid(&integers, (&scale, Some(&zero)), 1, &wide);
        require(builder, &wide, false, |p, j| (f32::from(value(p * n + j)) - (j % 200) as f32) * 0.125);
    }

    #[test]
    fn grids_of_blocks_are_widened_ahead() {
        let mut builder = Builder::new(Folding::new(1 << 24));
        let x = builder.input("x", spec(&[3, 128]));
        let integers = builder.constant("q", tensor(&[128, 1024], |i| (i % 251) as u8));
        // As many parameters as columns, but one for each row and block of 128 columns.
        let scale = builder.constant("s", tensor(&[128, 8], |_| 0.5f32));
        let one = builder.constant("o", tensor(&[], |_| 0.5f32));
        let zero = builder.constant("z", tensor(&[128, 8], |i| (i % 5) as u8));
        for (scale, zero) in [(&scale, None), (&one, Some(&zero))] {
            let wide = builder.constant("w", Tensor::zeroed(spec(&[128, 1024])));
            builder.remember_grid(&integers, (scale, zero), 1, &wide);
            assert_eq!(builder.narrow_product(&x, (&wide, false), &Epilogue::default()).expect("lowers"), None);
        }
    }

    #[test]
    fn grids_along_the_depth_are_widened_ahead() {
        let [m, k, n] = SIZES;
        let mut builder = Builder::new(Folding::new(1 << 24));
        let x = builder.input("x", spec(&[m, k]));
        let integers = builder.constant("q", tensor(&[k, n], |i| (i % 251) as u8));
        let scale = builder.constant("s", tensor(&[k], |_| 0.5f32));
        let wide = builder.constant("w", Tensor::zeroed(spec(&[k, n])));
        builder.remember_grid(&integers, (&scale, None), 0, &wide);
        assert_eq!(builder.narrow_product(&x, (&wide, false), &Epilogue::default()).expect("lowers"), None);
        let one = builder.constant("o", tensor(&[], |_| 0.5f32));
        let zero = builder.constant("z", tensor(&[k], |i| (i % 5) as u8));
        builder.remember_grid(&integers, (&one, Some(&zero)), 0, &wide);
        assert_eq!(builder.narrow_product(&x, (&wide, false), &Epilogue::default()).expect("lowers"), None);
    }
}
