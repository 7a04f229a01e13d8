//! Reductions over any axes, in a fixed tree.

use super::kernel::Recorder;
use super::lanes::{Lanes, tree};
use super::space::Space;
use super::{Recipe, Shader};
use anabranch_op::error::KernelError;
use anabranch_op::op::{NodeSpec, Reduce, ReduceKind};
use std::ops::Range;

/// Number of workgroups that occupy a large device. If outputs alone make fewer, a reduction is cut into parts.
const ENOUGH_GROUPS: usize = 1024;
/// Minimum elements of a thread for which a part is worth a second dispatch.
const LEAST_PASSES: usize = 32;

/// WGSL functions of a reduction.
pub(crate) struct Functions {
    /// Type `State`; `identity()`, the state of no elements; and `combine(a, b)`.
    pub(crate) state: String,
    pub(crate) state_bytes: u64,
    /// `lift(x, index)`, the state of one element, which is at this index along the reduced axes.
    pub(crate) lift: String,
    /// `lower(state)`, the result.
    pub(crate) lower: &'static str,
    /// Type of a result.
    pub(crate) result: &'static str,
}

impl Functions {
    fn of(kind: ReduceKind) -> Self {
        let state_bytes = if kind == ReduceKind::LogSumExp { 8 } else { 4 };
        Self { state: state_functions(kind), state_bytes, lift: lift(kind), lower: lower(kind), result: "f32" }
    }
}

/// Function that declares `load(index)`, an element of the reduction's input, in the shader of a reduction.
pub(crate) type Source<'s, 'a> = &'s dyn Fn(&Recorder<'a>, &mut Shader<'a>) -> Result<(), KernelError>;

pub(super) fn recipe<'n>(node: &NodeSpec, op: &Reduce) -> Recipe<'n> {
    let reduction = Reduction::new(node, op);
    let (scratch_bytes, passes) = (reduction.scratch_bytes(), reduction.passes());
    let recipe = Recipe::new(node, move |recorder| {
        let rows = recorder.rows(reduction.outputs);
        reduction.record_from(recorder, rows, 0, &|recorder, shader| {
            shader.read("x", "f32", recorder.input(0)?).code("fn load(at: u32) -> f32 { return x[at]; }\n");
            Ok(())
        })
    });
    Recipe { scratch_bytes, passes, ..recipe }
}

pub(crate) struct Reduction {
    functions: Functions,
    kept: Space,
    reduced: Space,
    outputs: usize,
    length: usize,
    parts: usize,
}

impl Reduction {
    pub(crate) fn new(node: &NodeSpec, op: &Reduce) -> Self {
        Self::along(&op.axes, node, Functions::of(op.kind))
    }

    /// Creates a reduction of the node's first input along these axes.
    pub(crate) fn along(axes: &[usize], node: &NodeSpec, functions: Functions) -> Self {
        let input = &node.inputs[0];
        let rank = input.shape.rank();
        let strides = input.shape.strides();
        let space = |reduced: bool| {
            let along = (0..rank).filter(|axis| axes.contains(axis) == reduced);
            let (dims, strides) = along.map(|axis| (input.shape.dims()[axis], strides[axis] as isize)).unzip();
            let dims: Vec<usize> = dims;
            (dims.iter().product::<usize>(), Space::collapsed(&dims, &[strides]))
        };
        let ((outputs, kept), (length, reduced)) = (space(false), space(true));
        let lanes = lanes(&reduced, outputs, length);
        let most = length / (lanes.width() * LEAST_PASSES);
        let parts = (ENOUGH_GROUPS / lanes.groups(outputs).max(1)).clamp(1, most.max(1));
        Self { functions, kept, reduced, outputs, length, parts }
    }

    /// Returns a key of the order of all sums, see [`super::summation`].
    pub(crate) fn summation(&self) -> Vec<usize> {
        vec![self.parts, self.chunk(), self.lanes().width()]
    }

    /// Returns the elements of one part; a whole number of vectors.
    fn chunk(&self) -> usize {
        self.length.div_ceil(self.parts).next_multiple_of(4)
    }

    /// Returns how threads share one part.
    fn lanes(&self) -> Lanes {
        lanes(&self.reduced, self.outputs, self.chunk())
    }

    /// Returns the passes of a thread through the elements of a part.
    pub(crate) fn passes(&self) -> usize {
        self.lanes().passes(self.chunk())
    }

    /// Returns the bytes of the states of all parts, if there are several parts.
    pub(crate) fn scratch_bytes(&self) -> u64 {
        if self.parts == 1 { 0 } else { (self.outputs * self.parts) as u64 * self.functions.state_bytes }
    }

    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Records the dispatches that make the outputs `rows` in the node's output `output`.
    pub(crate) fn record_from<'a>(
        &self,
        recorder: &mut Recorder<'a>,
        rows: Range<usize>,
        output: usize,
        source: Source<'_, 'a>,
    ) -> Result<(), KernelError> {
        self.gather(recorder, rows.clone(), output, source)?;
        if self.parts > 1 {
            self.combine(recorder, rows, output)?;
        }
        Ok(())
    }

    /// Records the dispatch that reduces the input, to states if it is cut into parts.
    fn gather<'a>(
        &self,
        recorder: &mut Recorder<'a>,
        rows: Range<usize>,
        output: usize,
        source: Source<'_, 'a>,
    ) -> Result<(), KernelError> {
        let lanes = self.lanes();
        let whole = self.parts == 1;
        let mut shader = Shader::new("reduce", include_str!("reduce.wgsl"));
        source(recorder, &mut shader)?;
        match whole {
            true => shader.write("y", self.functions.result, recorder.output(output)?),
            false => shader.write("y", "State", recorder.scratch()?),
        };
        self.sizes(&mut shader, rows.clone(), self.length, self.parts);
        shader.code(&self.functions.lift).code(&self.functions.state);
        shader.code(if whole { self.functions.lower } else { KEEP });
        self.addresses(&mut shader);
        finish(&mut shader, &lanes);
        recorder.dispatch(&shader, lanes.groups(rows.len() * self.parts))
    }

    /// Records the dispatch that combines the parts' states.
    fn combine(&self, recorder: &mut Recorder<'_>, rows: Range<usize>, output: usize) -> Result<(), KernelError> {
        let lanes = Lanes::new(self.parts, false);
        let mut shader = Shader::new("reduce_parts", include_str!("reduce.wgsl"));
        shader.read("x", "State", recorder.scratch()?);
        shader.write("y", self.functions.result, recorder.output(output)?);
        self.sizes(&mut shader, rows.clone(), self.parts, 1);
        shader
            .code("fn load(at: u32) -> State { return x[at]; }\nfn lift(x: State, index: u32) -> State { return x; }\n")
            .code(&self.functions.state)
            .code(self.functions.lower);
        // The states of the first output at hand come first.
        shader.code("fn start(output: u32) -> u32 { return (output - parameters.first) * parameters.length; }\n");
        shader.code("fn step(index: u32) -> u32 { return index; }\n");
        finish(&mut shader, &lanes);
        recorder.dispatch(&shader, lanes.groups(rows.len()))
    }

    fn sizes(&self, shader: &mut Shader<'_>, rows: Range<usize>, length: usize, parts: usize) {
        let chunk = if parts == 1 { length } else { self.chunk() };
        shader.parameter("first", rows.start).parameter("count", rows.len());
        shader.parameter("length", length).parameter("parts", parts).parameter("chunk", chunk);
        shader.parameter("divisor", self.length);
    }

    /// Declares the functions that find an output's elements. The common layouts name no sizes.
    fn addresses(&self, shader: &mut Shader<'_>) {
        let start = match (&self.kept.dims[..], self.reduced.is_dense(0)) {
            ([], _) => "    return 0u;\n".into(),
            ([_], true) if self.kept.strides[0] == [self.length as isize] => {
                "    return output * parameters.length;\n".into()
            }
            _ => format!("{}    return {};\n", self.kept.coordinates("output"), self.kept.offset(0)),
        };
        shader.code(&format!("fn start(output: u32) -> u32 {{\n{start}}}\n"));
        let step = format!("{}    return {};\n", self.reduced.coordinates("index"), self.reduced.offset(0));
        shader.code(&format!("fn step(index: u32) -> u32 {{\n{step}}}\n"));
    }
}

/// Returns how threads share `length` elements of a reduction.
fn lanes(reduced: &Space, outputs: usize, length: usize) -> Lanes {
    let across = reduced.strides[0].last().is_some_and(|stride| *stride != 1);
    Lanes::new(length, across && outputs > 1)
}

fn finish(shader: &mut Shader<'_>, lanes: &Lanes) {
    lanes.declare(shader);
    shader.code(&tree("total", "State", "combine"));
}

const KEEP: &str = "fn lower(state: State) -> State { return state; }\n";

/// Returns the function that turns an element into a state.
fn lift(kind: ReduceKind) -> String {
    let value = match kind {
        ReduceKind::Sum | ReduceKind::Mean | ReduceKind::Max | ReduceKind::Min | ReduceKind::Product => "x",
        ReduceKind::SumOfSquares => "x * x",
        ReduceKind::SumOfMagnitudes => "abs(x)",
        ReduceKind::LogSumExp => "State(x, 1.0)",
    };
    format!("fn lift(x: f32, index: u32) -> State {{ return {value}; }}\n")
}

/// Returns the type of states, the state of no elements, and the function that combines two states.
fn state_functions(kind: ReduceKind) -> String {
    let (identity, combined) = match kind {
        ReduceKind::Max => ("negative_infinity()", "maximum(a, b)"),
        ReduceKind::Min => ("-negative_infinity()", "minimum(a, b)"),
        ReduceKind::Product => ("1.0", "a * b"),
        ReduceKind::LogSumExp => return LOG_SUM_EXP.into(),
        _ => ("0.0", "a + b"),
    };
    format!(
        "alias State = f32;\nfn identity() -> State {{ return {identity}; }}\n\
         fn combine(a: State, b: State) -> State {{ return {combined}; }}\n"
    )
}

/// State of `ln Σ exp x`: the greatest x and the sum of `exp(x − greatest)`.
const LOG_SUM_EXP: &str = "alias State = vec2<f32>;
fn identity() -> State { return State(negative_infinity(), 0.0); }
fn combine(a: State, b: State) -> State {
    let peak = maximum(a.x, b.x);
    // Beside an infinite peak every other term vanishes, and the difference of two infinities is to be avoided.
    if is_infinite(peak) { return State(peak, 1.0); }
    return State(peak, a.y * exponential(a.x - peak) + b.y * exponential(b.x - peak));
}
";

/// Returns the function that turns the last state into the result.
const fn lower(kind: ReduceKind) -> &'static str {
    match kind {
        ReduceKind::Mean => "fn lower(state: State) -> f32 { return state / f32(parameters.divisor); }\n",
        ReduceKind::LogSumExp => "fn lower(state: State) -> f32 { return state.x + logarithm(state.y); }\n",
        _ => "fn lower(state: State) -> f32 { return state; }\n",
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, assert_close, check, check_rows, check_run, inputs, narrow, node, noise, tensor};
    use super::*;
    use anabranch_op::op::Op;

    const KINDS: [ReduceKind; 8] = [
        ReduceKind::Sum,
        ReduceKind::Mean,
        ReduceKind::Max,
        ReduceKind::Min,
        ReduceKind::Product,
        ReduceKind::SumOfSquares,
        ReduceKind::SumOfMagnitudes,
        ReduceKind::LogSumExp,
    ];

    fn reduce(kind: ReduceKind, dims: &[usize], axes: &[usize]) -> NodeSpec {
        let kept: usize = (0..dims.len()).filter(|a| !axes.contains(a)).map(|a| dims[a]).product();
        node(Op::Reduce(Reduce { kind, axes: axes.to_vec() }), &[dims], &[&[kept]])
    }

    #[test]
    fn every_kind_over_every_layout() {
        let cases: [(&[usize], &[usize]); 7] = [
            (&[5, 7], &[1]),
            (&[5, 7], &[0]),
            (&[3, 4, 5, 6], &[1, 3]),
            (&[2, 3, 130, 2], &[2]),
            (&[2, 9, 70], &[0, 2]),
            (&[1, 300], &[0, 1]),
            (&[6, 1], &[1]),
        ];
        for (dims, axes) in cases {
            for kind in KINDS {
                let node = reduce(kind, dims, axes);
                check(&node, &inputs(&node, 21));
            }
        }
    }

    #[test]
    fn long_reductions_are_cut_into_parts() {
        for kind in KINDS {
            let dims = [3, 40_001];
            let node = reduce(kind, &dims, &[1]);
            assert!(super::super::scratch_bytes(&node) > 0);
            let mut x = noise(5, 3 * 40_001);
            if kind == ReduceKind::Product {
                // Powers of two have exact products; in the Thue–Morse order no partial product grows large.
                let power = |index: usize| if index.count_ones().is_multiple_of(2) { 2f32 } else { 0.5 };
                x.iter_mut().enumerate().for_each(|(index, v)| *v = power(index).copysign(*v));
            }
            let x = [tensor(&dims, &x)];
            check(&node, &x);
            check_rows(&node, &x, 1..2);
        }
    }

    #[test]
    fn special_values() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let x = [1.0, nan, 2.0, 1.0, -inf, 2.0, inf, 1.0, 0.0, -inf, -inf, -inf];
        for (kind, want) in [
            (ReduceKind::Max, [nan, 2.0, inf, -inf]),
            (ReduceKind::Min, [nan, -inf, 0.0, -inf]),
            (ReduceKind::Sum, [nan, -inf, inf, -inf]),
            (ReduceKind::LogSumExp, [nan, 2.313_261_7, inf, -inf]),
        ] {
            let node = reduce(kind, &[4, 3], &[1]);
            let got = Run::new(&node).outputs(&[tensor(&[4, 3], &x)]).expect("runs").remove(0);
            assert_close(&got, &want, &format!("{kind:?}"));
        }
    }

    #[test]
    fn more_outputs_than_one_dimension_of_groups_holds() {
        let dims = [300, 1030];
        let node = reduce(ReduceKind::Sum, &dims, &[1]);
        check_run(Run { gpu: narrow(), ..Run::new(&node) }, &inputs(&node, 22));
    }
}
