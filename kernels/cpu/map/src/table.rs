//! Expressions of one byte: all 256 values are computed in advance, and looked up.

use anabranch_cpu_base::elements::{elements, elements_mut};
use anabranch_cpu_base::look_up::{BYTES, look_up_bytes};
use anabranch_cpu_base::{Call, CpuKernel, Team};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::minifloat::Minifloat;
use anabranch_op::op::{Binary, Map, NodeSpec, Op, Step, Unary};
use anabranch_op::shape::Shape;
use anabranch_op::tensor::{Buffer, TensorSpec};
use bytemuck::Pod;

/// Function that prepares a kernel which computes every element.
type Computed = fn(&NodeSpec, &Map) -> Result<Box<dyn CpuKernel>, KernelError>;

/// Minimum elements for which a table is made.
const MANY: usize = 4 * BYTES;

/// Passes over the elements that take longer than a look-up of each.
const MANY_PASSES: usize = 4;

/// Elements of a piece, the unit of work of a thread.
const PIECE: usize = 32 * 1024;

/// Kernel of an expression of one byte.
pub(crate) struct Table {
    values: Buffer,
    /// Bytes of a value.
    size: usize,
}

impl Table {
    /// Makes a table if it is worth the time and all values are defined.
    pub(crate) fn new(node: &NodeSpec, map: &Map, computed: Computed) -> Option<Self> {
        let ([input], [output]) = (&*node.inputs, &*node.outputs) else { return None };
        let is_byte = matches!(input.dtype, DType::I8 | DType::U8) || is_eight_bit_float(input.dtype);
        let many = output.shape.elements() >= MANY && input.shape.elements() == output.shape.elements();
        let aligned = node.row_plan().is_none_or(|plan| plan.windowed[0]);
        let formats = [input, output].into_iter().filter(|spec| Minifloat::of(spec.dtype).is_some());
        let passes = map.expression.steps().iter().map(passes).sum::<usize>() + MANY_PASSES * formats.count();
        (is_byte && many && aligned && passes >= MANY_PASSES).then(|| Self::made(node, map, computed)).flatten()
    }

    fn made(node: &NodeSpec, map: &Map, computed: Computed) -> Option<Self> {
        let spec = |dtype| Some(TensorSpec::new(dtype, Shape::new([BYTES]).ok()?));
        let (input, output) = (spec(node.inputs[0].dtype)?, spec(node.outputs[0].dtype)?);
        let mut values = Buffer::zeroed(output.bytes());
        let all = NodeSpec { op: Op::Map(map.clone()), inputs: vec![input], outputs: vec![output] };
        let kernel = computed(&all, map).ok()?;
        let bytes = Buffer::copied(&std::array::from_fn::<u8, BYTES, _>(|byte| byte as u8));
        let rows = 0..all.row_plan().map_or(1, |plan| plan.rows);
        let outputs = &mut [values.bytes_mut()];
        kernel.run(Call { inputs: &[bytes.bytes()], outputs, rows, scratch: &mut [], team: &Team::solo() }).ok()?;
        Some(Self { values, size: all.outputs[0].dtype.size() })
    }

    fn look_up_bytes(&self, call: Call<'_>) {
        let values = self.all::<u8>();
        let bytes = call.inputs[0];
        call.team.run_pieces(elements_mut(call.outputs[0]), PIECE, &|piece, out| {
            look_up_bytes(values, &bytes[piece * PIECE..][..out.len()], out);
        });
    }

    /// Returns the value of each byte.
    fn all<T: Pod>(&self) -> &[T; BYTES] {
        elements(self.values.bytes()).try_into().expect("a value for each byte")
    }

    fn look_up<T: Pod + Send + Sync>(&self, call: Call<'_>) {
        let values = self.all::<T>();
        let bytes = call.inputs[0];
        call.team.run_pieces(elements_mut(call.outputs[0]), PIECE, &|piece, out| {
            let bytes = &bytes[piece * PIECE..];
            out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = values[usize::from(*byte)]);
        });
    }
}

fn is_eight_bit_float(dtype: DType) -> bool {
    matches!(dtype, DType::F8E4M3Fn | DType::F8E4M3Fnuz | DType::F8E5M2 | DType::F8E5M2Fnuz)
}

/// Returns about as many passes over the elements as a step takes.
fn passes(step: &Step) -> usize {
    use Unary::{Abs, Ceil, Floor, IsInfinite, IsNan, Negate, Not, Relu, Round, Sign, Truncate};
    match step {
        Step::Constant(_) => 0,
        Step::Unary(Abs | Ceil | Floor | IsInfinite | IsNan | Negate | Not | Relu | Round | Sign | Truncate, _) => 1,
        Step::Unary(..) | Step::Binary(Binary::Power | Binary::FloorModulo | Binary::TruncatedModulo, ..) => 4,
        Step::Binary(..) | Step::Select(..) => 1,
    }
}

impl CpuKernel for Table {
    fn resident_bytes(&self) -> usize {
        self.values.len()
    }

    fn run(&self, call: Call<'_>) -> Result<(), KernelError> {
        match self.size {
            1 => self.look_up_bytes(call),
            2 => self.look_up::<u16>(call),
            4 => self.look_up::<u32>(call),
            _ => self.look_up::<u64>(call),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::computed;
    use crate::testing::{run_all_ways, shape};
    use anabranch_op::op::{Domain, Expression};
    use anabranch_op::tensor::Tensor;
    use std::sync::Arc;

    #[test]
    fn values_that_are_looked_up_are_those_that_are_computed() {
        let bytes: Vec<u8> = (0..70_000usize).map(|i| (i * 7 + i / 256) as u8).collect();
        let sigmoid = Expression::unary(Unary::Sigmoid);
        let outputs = [DType::F32, DType::F16, DType::U8, DType::I64, DType::F8E5M2];
        for dtype in [DType::U8, DType::I8, DType::F8E4M3Fn] {
            for (output, expression) in
                outputs.into_iter().flat_map(|to| [(to, sigmoid.clone()), (to, Expression::identity())])
            {
                let map = Map { domain: Domain::F32, expression };
                let spec = |dtype| TensorSpec::new(dtype, shape(&[bytes.len() / 7, 7]));
                let input = Tensor::new(spec(dtype), Arc::new(Buffer::copied(&bytes))).expect("as many bytes");
                let node =
                    NodeSpec { op: Op::Map(map.clone()), inputs: vec![spec(dtype)], outputs: vec![spec(output)] };
                let costly =
                    !map.expression.steps().is_empty() || is_eight_bit_float(dtype) || is_eight_bit_float(output);
                assert_eq!(Table::new(&node, &map, computed).is_some(), costly, "{dtype} to {output}");
                let found = run_all_ways(&node, std::slice::from_ref(&input)).remove(0);
                let mut want = Buffer::zeroed(node.outputs[0].bytes());
                let rows = 0..node.row_plan().map_or(1, |plan| plan.rows);
                let call = Call {
                    inputs: &[&bytes],
                    outputs: &mut [want.bytes_mut()],
                    rows,
                    scratch: &mut [],
                    team: &Team::solo(),
                };
                computed(&node, &map).expect("sound").run(call).expect("defined everywhere");
                assert_eq!(found.bytes(), want.bytes(), "{dtype} to {output}");
            }
        }
    }
}
