//! The op set's operations on views: each method emits one op, or none if a view suffices.

use super::builder::Builder;
use super::expression::{Term, domain_of, expression, literal, working};
use super::view::View;
use crate::host_operators::Fault;
use anabranch_kernels::op::{
    Binary, Concat, Domain, Expression, Literal, Map, MatMul, Op, Pad, PadMode, Reduce, ReduceKind, Slice, Transpose,
    Unary,
};
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use std::slice::from_ref;

/// Operation on each element of an op's result: an expression whose register 0 is the element, and the views that its
/// other registers read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Epilogue {
    /// The expression; `None` leaves the result as it is.
    pub(crate) expression: Option<Expression>,
    /// Its operands, each broadcast to the result's shape.
    pub(crate) operands: Vec<View>,
}

impl Builder {
    /// Applies a formula to views, which are broadcast together.
    pub(crate) fn map<const N: usize>(
        &mut self,
        domain: Domain,
        inputs: [&View; N],
        dtype: DType,
        formula: impl FnOnce([Term<'_>; N]) -> Term<'_>,
    ) -> Result<View, Fault> {
        let mut shape = Shape::scalar();
        for input in inputs {
            shape = shape.broadcast(input.shape())?;
        }
        self.map_to(domain, inputs, TensorSpec::new(dtype, shape), formula)
    }

    /// Applies a formula to views, which are broadcast to the output's shape.
    pub(crate) fn map_to<const N: usize>(
        &mut self,
        domain: Domain,
        inputs: [&View; N],
        output: TensorSpec,
        formula: impl FnOnce([Term<'_>; N]) -> Term<'_>,
    ) -> Result<View, Fault> {
        let is_double = |dtype: DType| dtype == DType::F64;
        if domain == Domain::F32 && (is_double(output.dtype) || inputs.iter().any(|input| is_double(input.dtype()))) {
            return Err(Fault::narrowed());
        }
        let op = Op::Map(Map { domain, expression: expression(domain, formula) });
        self.emit_one(op, &inputs.map(View::clone), output)
    }

    /// Applies an epilogue to a view.
    pub(crate) fn finished(&mut self, view: &View, epilogue: Epilogue) -> Result<View, Fault> {
        let Some(expression) = epilogue.expression else { return Ok(view.clone()) };
        let inputs = [vec![view.clone()], epilogue.operands].concat();
        self.emit_one(Op::Map(Map { domain: domain_of(view.dtype()), expression }), &inputs, view.spec.clone())
    }

    /// Returns the output of an op with an epilogue: the op's own or, for 64-bit floats, whose ops have no epilogue, an
    /// expression after it.
    pub(crate) fn emit_finished(
        &mut self,
        mut op: Op,
        mut inputs: Vec<View>,
        epilogue: Epilogue,
        output: TensorSpec,
    ) -> Result<View, Fault> {
        if output.dtype == DType::F64 {
            let made = self.emit_one(op, &inputs, output)?;
            return self.finished(&made, epilogue);
        }
        if let Some(own) = op.epilogue_mut() {
            *own = epilogue.expression;
        }
        inputs.extend(epilogue.operands);
        self.emit_one(op, &inputs, output)
    }

    /// Converts the view's elements to `dtype`; returns the view itself if it has that type. Values beyond an 8-bit
    /// float become its greatest value.
    pub(crate) fn cast(&mut self, view: &View, dtype: DType) -> Result<View, Fault> {
        self.converted(view, dtype, true)
    }

    /// Converts elements as [`Self::cast`] does; without `saturate`, values beyond an 8-bit float become infinite or
    /// NaN.
    pub(crate) fn converted(&mut self, view: &View, dtype: DType, saturate: bool) -> Result<View, Fault> {
        let output = TensorSpec::new(dtype, view.shape().clone());
        let integers = domain_of(view.dtype()).is_integer();
        let domain = match dtype {
            _ if dtype == view.dtype() => return Ok(view.clone()),
            DType::F64 => Domain::F64,
            DType::Bool => domain_of(view.dtype()),
            _ if view.dtype() == DType::F64 => Domain::F64,
            _ if integers && !dtype.is_float() => Domain::I64,
            // An intermediate `f32` would round a second time.
            DType::BF16 if integers && view.dtype().size() >= 4 => domain_of(view.dtype()),
            _ => Domain::F32,
        };
        let converted = self.map_to(domain, [view], output, |[x]| match dtype {
            DType::Bool => x.apply(Unary::Not).apply(Unary::Not),
            _ => match greatest(dtype).filter(|_| saturate) {
                Some(greatest) => x.with(Binary::Min, greatest).with(Binary::Max, -greatest),
                None => x,
            },
        })?;
        self.remember_floats(view, &converted);
        Ok(converted)
    }

    /// Converts the view's elements to the floats that compute-heavy ops use: 64-bit floats stay, all others become
    /// `f32`.
    pub(crate) fn as_working(&mut self, view: &View) -> Result<View, Fault> {
        self.cast(view, working(view.dtype()))
    }

    /// Converts the view's elements to `f32`, for ops that compute in no other type.
    ///
    /// # Errors
    /// If they are 64-bit floats.
    pub(crate) fn as_f32(&mut self, view: &View) -> Result<View, Fault> {
        match view.dtype() {
            DType::F64 => Err(Fault::narrowed()),
            _ => self.cast(view, DType::F32),
        }
    }

    /// Repeats the view to fill `shape`.
    pub(crate) fn expanded(&mut self, view: &View, shape: Shape) -> Result<View, Fault> {
        if *view.shape() == shape {
            return Ok(view.clone());
        }
        view.shape().broadcast_strides(&shape)?;
        if view.elements() == shape.elements() {
            return view.reshaped(shape);
        }
        self.map_to(domain_of(view.dtype()), [view], TensorSpec::new(view.dtype(), shape), |[x]| x)
    }

    /// Permutes the view's axes: output axis `i` is axis `permutation[i]`. Emits no node if only axes of one element
    /// change places.
    pub(crate) fn transposed(&mut self, view: &View, permutation: &[usize]) -> Result<View, Fault> {
        let dims: Vec<_> = permutation.iter().map(|axis| view.dims()[*axis]).collect();
        let long = permutation.iter().filter(|axis| view.dims()[**axis] != 1);
        if long.is_sorted() {
            return view.reshaped(dims);
        }
        let output = TensorSpec::new(view.dtype(), Shape::new(dims)?);
        self.emit_one(Op::Transpose(Transpose { permutation: permutation.to_vec() }), from_ref(view), output)
    }

    /// Takes `counts[axis]` elements along each axis from `starts[axis]` on, `steps[axis]` apart. All indices are
    /// within the view.
    pub(crate) fn sliced(
        &mut self,
        view: &View,
        starts: Vec<usize>,
        steps: Vec<isize>,
        counts: Vec<usize>,
    ) -> Result<View, Fault> {
        let forward = steps.iter().zip(&counts).all(|(step, count)| *step == 1 || *count <= 1);
        if counts == view.dims() && forward {
            return Ok(view.clone());
        }
        let output = TensorSpec::new(view.dtype(), Shape::new(counts)?);
        self.emit_one(Op::Slice(Slice { starts, steps }), from_ref(view), output)
    }

    /// Takes the indices `start..start + count` along one axis.
    pub(crate) fn part(&mut self, view: &View, axis: usize, start: usize, count: usize) -> Result<View, Fault> {
        let mut starts = vec![0; view.rank()];
        let mut counts = view.dims().to_vec();
        starts[axis] = start;
        counts[axis] = count;
        self.sliced(view, starts, vec![1; view.rank()], counts)
    }

    /// Concatenates views along an axis; views without elements are left out.
    pub(crate) fn concatenated(&mut self, views: &[View], axis: usize) -> Result<View, Fault> {
        let mut dims = views.first().ok_or_else(|| Fault::missing(0))?.dims().to_vec();
        dims[axis] = views.iter().map(|view| view.dims()[axis]).fold(0, usize::saturating_add);
        let shape = Shape::new(dims)?;
        let filled: Vec<_> = views.iter().filter(|view| view.elements() > 0).cloned().collect();
        match &filled[..] {
            [single] => single.reshaped(shape),
            _ => {
                let output = TensorSpec::new(views[0].dtype(), shape);
                self.emit_one(Op::Concat(Concat { axis }), &filled, output)
            }
        }
    }

    /// Pads the view: `before[axis]` elements before, and as many after as the output's dimensions require.
    pub(crate) fn padded(
        &mut self,
        view: &View,
        mode: PadMode,
        before: Vec<isize>,
        dims: Vec<usize>,
    ) -> Result<View, Fault> {
        if before.iter().all(|count| *count == 0) && dims == view.dims() {
            return Ok(view.clone());
        }
        let output = TensorSpec::new(view.dtype(), Shape::new(dims)?);
        self.emit_one(Op::Pad(Pad { mode, before }), from_ref(view), output)
    }

    /// Reduces over `axes` (ascending), which stay with one element each.
    ///
    /// Computes in `f32`, or in `f64` for 64-bit floats. Integers are reduced as integers of 32 or 64 bits, but the
    /// logarithm of a sum of their exponentials is computed in `f64`.
    pub(crate) fn reduced(&mut self, view: &View, kind: ReduceKind, axes: &[usize]) -> Result<View, Fault> {
        let mut dims = view.dims().to_vec();
        axes.iter().for_each(|axis| dims[*axis] = 1);
        let integers = domain_of(view.dtype()).is_integer();
        let work = match view.dtype() {
            _ if integers && kind == ReduceKind::LogSumExp => DType::F64,
            dtype @ (DType::I32 | DType::U64) => dtype,
            _ if integers => DType::I64,
            dtype => working(dtype),
        };
        let shape = Shape::new(dims)?;
        if let (true, Some([least, greatest])) = (integers && view.elements() == 0, ends(view.dtype())) {
            // The end of the type's range is neutral.
            match kind {
                ReduceKind::Max => return self.filled(TensorSpec::new(view.dtype(), shape), least),
                ReduceKind::Min => return self.filled(TensorSpec::new(view.dtype(), shape), greatest),
                _ => {}
            }
        }
        let input = self.cast(view, work)?;
        let output = TensorSpec::new(work, shape);
        let op = Op::Reduce(Reduce { kind, axes: axes.to_vec() });
        let result = self.emit_one(op, &[input], output)?;
        if view.dtype() != DType::Bool {
            return self.cast(&result, view.dtype());
        }
        // The greatest of no bools is −∞, which becomes false.
        self.map(Domain::F32, [&result], DType::Bool, |[x]| x.with(Binary::Greater, 0.0))
    }

    /// Multiplies matrices of one working type over batches; `dims` is the result's shape.
    pub(crate) fn product(
        &mut self,
        op: MatMul,
        a: &View,
        b: &View,
        dims: Vec<usize>,
        epilogue: Epilogue,
    ) -> Result<View, Fault> {
        let output = TensorSpec::new(a.dtype(), Shape::new(dims)?);
        self.emit_finished(Op::MatMul(op), vec![a.clone(), b.clone()], epilogue, output)
    }

    /// Adds a constant of these numbers, rounded to `dtype`: `f64` or `f32`.
    pub(crate) fn table(&mut self, dtype: DType, dims: Vec<usize>, numbers: &[f64]) -> Result<View, Fault> {
        let shape = Shape::new(dims)?;
        let tensor = match dtype {
            DType::F64 => Tensor::from_elements(shape, numbers),
            _ => Tensor::from_elements(shape, &numbers.iter().map(|number| *number as f32).collect::<Vec<_>>()),
        };
        self.made(tensor.expect("as many numbers as the shape has elements"))
    }

    pub(crate) fn scalar(&mut self, dtype: DType, value: impl Into<Literal>) -> Result<View, Fault> {
        self.filled(TensorSpec::new(dtype, Shape::scalar()), value)
    }

    /// Fills a tensor with one value: a constant if the limit of constants allows it, else computed when the program
    /// runs.
    pub(crate) fn filled(&mut self, spec: TensorSpec, value: impl Into<Literal>) -> Result<View, Fault> {
        let domain = domain_of(spec.dtype);
        let expression = Expression::new(0, vec![literal(domain, value.into())]).expect("one step");
        self.emit_one(Op::Map(Map { domain, expression }), &[], spec)
    }

    /// Returns the numbers `0..count` along `axis` of an otherwise one-element shape of `rank` dimensions, in the type
    /// in which elements of `dtype` are computed.
    pub(crate) fn indices(&mut self, dtype: DType, count: usize, axis: usize, rank: usize) -> Result<View, Fault> {
        let mut dims = vec![1; rank];
        dims[axis] = count;
        let shape = Shape::new(dims)?;
        let bytes = shape.elements() * 8;
        self.afford(bytes)?;
        let tensor = match domain_of(dtype) {
            Domain::F32 => Tensor::from_elements(shape, &(0..count).map(|i| i as f32).collect::<Vec<_>>()),
            Domain::F64 => Tensor::from_elements(shape, &(0..count).map(|i| i as f64).collect::<Vec<_>>()),
            Domain::I64 => Tensor::from_elements(shape, &(0..count).map(|i| i as i64).collect::<Vec<_>>()),
            Domain::U64 => Tensor::from_elements(shape, &(0..count).map(|i| i as u64).collect::<Vec<_>>()),
        };
        self.made(tensor.expect("as many numbers as the axis has elements"))
    }
}

/// Least and greatest number of an integer type.
fn ends(dtype: DType) -> Option<[Literal; 2]> {
    let signed = |bits: u32| Some([Literal::Int(-1 << (bits - 1)), Literal::Int((1 << (bits - 1)) - 1)]);
    let unsigned = |bits: u32| Some([Literal::Int(0), Literal::Int((1 << bits) - 1)]);
    match dtype {
        DType::I64 => Some([Literal::Int(i64::MIN), Literal::Int(i64::MAX)]),
        DType::U64 => Some([Literal::Int(0), Literal::Int(u64::MAX as i64)]),
        DType::I32 => signed(32),
        DType::I16 => signed(16),
        DType::I8 => signed(8),
        DType::I4 => signed(4),
        DType::I2 => signed(2),
        DType::U32 => unsigned(32),
        DType::U16 => unsigned(16),
        DType::U8 => unsigned(8),
        DType::U4 => unsigned(4),
        DType::U2 => unsigned(2),
        _ => None,
    }
}

/// Greatest number of an 8-bit float (Micikevicius et al. 2022, table 1; ONNX, "Float stored in 8 bits").
const fn greatest(dtype: DType) -> Option<f64> {
    match dtype {
        DType::F8E4M3Fn => Some(448.0),
        DType::F8E4M3Fnuz => Some(240.0),
        DType::F8E5M2 | DType::F8E5M2Fnuz => Some(57344.0),
        _ => None,
    }
}
