//! One element-wise node, or several (as a block, which may end in a reduction), as one kernel.
//!
//! One thread computes all members' values of an element, one after the other in registers, as each is computed outside
//! of blocks. A reduction at the end takes them in the same tree as it does from memory. Broadcast operands come from
//! outside; values that leave the block are stored on the way.

use super::kernel::Recorder;
use super::map::ElementWise;
use super::reduce::Reduction;
use super::{Recipe, Shader, expression};
use anabranch_op::error::KernelError;
use anabranch_op::op::{Block, Map, Member, NodeSpec, Op, Operand};
use std::collections::BTreeSet;
use std::fmt::Write;

struct Members {
    members: Vec<Fused>,
    /// Reduction at the end, and its operand.
    reduction: Option<(Reduction, Operand)>,
    /// Member that makes each output.
    outputs: Vec<usize>,
    rows: usize,
    /// Whether a reduction over everything is at the end.
    is_whole: bool,
    /// Elements of every member.
    elements: usize,
}

struct Fused {
    map: ElementWise,
    operands: Vec<Operand>,
    /// Number of its first register in the block ([`expression::function`]).
    first: usize,
}

/// Returns the kernel of a single element-wise node: a block of that node.
pub(super) fn of_map<'n>(node: &NodeSpec, map: &Map) -> Result<Recipe<'n>, KernelError> {
    let map = ElementWise::new(node, map)?;
    let (rows, elements) = (map.rows, map.elements);
    let members = vec![Fused { map, operands: (0..node.inputs.len()).map(Operand::Input).collect(), first: 0 }];
    let members = Members { members, reduction: None, outputs: vec![0], rows, is_whole: false, elements };
    Ok(Recipe::new(node, move |recorder| members.record_maps("map", recorder)))
}

pub(super) fn recipe<'n>(node: &NodeSpec, block: &Block) -> Result<Recipe<'n>, KernelError> {
    let members = Members::new(node, block)?;
    let reduction = members.reduction.as_ref().map(|(reduction, _)| reduction);
    let (scratch_bytes, passes) =
        (reduction.map_or(0, Reduction::scratch_bytes), reduction.map_or(0, Reduction::passes));
    let reads = members.reads(true).len().max(members.reads(false).len());
    let bindings = reads + members.outputs.len() + usize::from(scratch_bytes > 0);
    let recipe = Recipe::new(node, move |recorder| members.record(recorder));
    Ok(Recipe { bindings, scratch_bytes, passes, ..recipe })
}

impl Members {
    fn new(node: &NodeSpec, block: &Block) -> Result<Self, KernelError> {
        let refuse = |at: usize, reason: &str| {
            let name = block.members[at].spec.op.name();
            Err(node.unsupported(format!("member {at} ({name}) {reason}: GPUs have no kernel for such blocks")))
        };
        let (mut members, mut reduction) = (Vec::new(), None);
        let elements = block.members[0].spec.inputs.iter().chain(&block.members[0].spec.outputs);
        let elements = elements.map(|spec| spec.shape.elements()).max().unwrap_or(0);
        for (at, Member { spec, inputs }) in block.members.iter().enumerate() {
            let is_last = at + 1 == block.members.len();
            if !spec.is_f32() {
                return refuse(at, "has types other than f32");
            }
            let computed = match &spec.op {
                Op::Map(map) => {
                    let first = members.last().map_or(0, |last: &Fused| last.own() + 1);
                    members.push(Fused { map: ElementWise::new(spec, map)?, operands: inputs.clone(), first });
                    &spec.outputs[0]
                }
                Op::Reduce(op) if is_last => {
                    reduction = Some((Reduction::new(spec, op), inputs[0]));
                    &spec.inputs[0]
                }
                _ => return refuse(at, "is not element-wise, and not a reduction at the end"),
            };
            let passed = inputs.iter().zip(&spec.inputs).filter(|(operand, _)| matches!(operand, Operand::Member(_)));
            let mut all = passed.map(|(_, tensor)| tensor).chain([computed]);
            if all.any(|tensor| tensor.shape.elements() != elements) {
                return refuse(at, "works on other elements than the first");
            }
        }
        let is_whole = block.ends_in_reduction();
        Ok(Self { members, reduction, outputs: block.outputs.clone(), rows: block.rows, is_whole, elements })
    }

    /// Returns the WGSL function `name(index) -> f32`, or a function of vectors of four elements. It computes all
    /// members, stores all values that leave the block except `result`, and returns `result`.
    fn function(&self, name: &str, result: Operand, vectors: bool) -> String {
        let kind = if vectors { "vec4<f32>" } else { "f32" };
        let mut text = String::new();
        let mut body = format!("fn {name}(index: u32) -> {kind} {{\n");
        for (at, member) in self.members.iter().enumerate() {
            text.push_str(&member.functions(at, vectors));
            let opaque = |value: &str, number: usize| match vectors {
                true => format!("opaque4({value}, {number}u)"),
                false => expression::opaque(value, number),
            };
            let argument = |(input, operand): (usize, &Operand)| {
                let value = match operand {
                    Operand::Input(_) => format!("load{at}_{input}(index)"),
                    Operand::Member(of) => format!("v{of}"),
                };
                // A repeated operand must be hidden: the compiler sees that both are the same.
                if member.operands[..input].contains(operand) { opaque(&value, member.first + input) } else { value }
            };
            let arguments: Vec<_> = member.operands.iter().enumerate().map(argument).collect();
            let value = format!("apply{at}({})", arguments.join(", "));
            let is_last = self.reduction.is_none() && at + 1 == self.members.len();
            let value = if is_last { value } else { opaque(&value, member.own()) };
            let _ = writeln!(body, "    let v{at} = {value};");
            let output = self.outputs.iter().position(|output| *output == at);
            if let Some(output) = output.filter(|_| self.reduction.is_some() || result != Operand::Member(at)) {
                let _ = writeln!(body, "    y{output}[index] = v{at};");
            }
        }
        let value = match result {
            Operand::Input(input) => format!("x{input}[index]"),
            Operand::Member(of) => format!("v{of}"),
        };
        let _ = write!(body, "    return {value};\n}}\n");
        text + &body
    }

    /// Returns the buffers that are read, and whether as vectors, which holds for operands that vary from element to
    /// element.
    fn reads(&self, vectors: bool) -> BTreeSet<(usize, bool)> {
        let mut reads = BTreeSet::new();
        for member in &self.members {
            for (at, operand) in member.operands.iter().enumerate() {
                if let Operand::Input(input) = operand {
                    reads.insert((*input, vectors && member.map.varies(at)));
                }
            }
        }
        if let Some((_, Operand::Input(input))) = self.reduction {
            reads.insert((input, false));
        }
        reads
    }

    /// Declares all buffers except that of the output `but`.
    fn declare<'a>(
        &self,
        recorder: &Recorder<'a>,
        shader: &mut Shader<'a>,
        vectors: bool,
        but: usize,
    ) -> Result<(), KernelError> {
        for (input, vector) in self.reads(vectors) {
            let (name, kind) = if vector { ("w", "vec4<f32>") } else { ("x", "f32") };
            shader.read(format!("{name}{input}"), kind, recorder.input(input)?);
        }
        for output in (0..self.outputs.len()).filter(|output| *output != but) {
            shader.write(format!("y{output}"), if vectors { "vec4<f32>" } else { "f32" }, recorder.output(output)?);
        }
        Ok(())
    }

    fn record(&self, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let Some((reduction, operand)) = &self.reduction else { return self.record_maps("block", recorder) };
        let rows = recorder.rows(self.rows);
        let rows = match self.is_whole {
            true if rows == (0..self.rows) => 0..reduction.outputs(),
            true => return Err(recorder.error(format!("a reduction of all rows, of which {rows:?} were asked for"))),
            false => {
                let own = reduction.outputs() / self.rows;
                rows.start * own..rows.end * own
            }
        };
        let last = self.outputs.len() - 1;
        reduction.record_from(recorder, rows, last, &|recorder, shader| {
            self.declare(recorder, shader, false, last)?;
            shader.code(&self.function("load", *operand, false));
            Ok(())
        })
    }

    /// Records the single dispatch of a block without a reduction.
    fn record_maps(&self, name: &'static str, recorder: &mut Recorder<'_>) -> Result<(), KernelError> {
        let rows = recorder.rows(self.rows);
        let row = self.elements / self.rows;
        let (first, count) = (rows.start * row, rows.len() * row);
        let vectors = self.members.iter().all(|member| member.map.vectors(first, count));
        let width = if vectors { 4 } else { 1 };
        let last = self.outputs.len() - 1;
        let mut shader = Shader::new(name, include_str!("map.wgsl"));
        shader.parameter("first", first / width).parameter("count", count / width);
        self.declare(recorder, &mut shader, vectors, last)?;
        shader.write("y", if vectors { "vec4<f32>" } else { "f32" }, recorder.output(last)?);
        shader.code(&self.function("element", Operand::Member(self.outputs[last]), vectors));
        recorder.dispatch_each(&shader, count / width)
    }
}

impl Fused {
    /// Returns the number by which its value is opaque; the numbers of its registers come before it.
    fn own(&self) -> usize {
        self.first + self.map.expression.registers()
    }

    /// Returns the member's functions: `evaluate`, `apply` for each element of a vector, and `load` for each operand
    /// from outside.
    fn functions(&self, at: usize, vectors: bool) -> String {
        let evaluate = if vectors { format!("evaluate{at}") } else { format!("apply{at}") };
        let mut text = expression::function(&evaluate, &self.map.expression, self.first);
        if vectors {
            let operands = 0..self.operands.len();
            let parameters: Vec<_> = operands.clone().map(|i| format!("a{i}: vec4<f32>")).collect();
            let lane = |lane: &str| {
                let arguments: Vec<_> = operands.clone().map(|i| format!("a{i}.{lane}")).collect();
                format!("{evaluate}({})", arguments.join(", "))
            };
            let lanes = ["x", "y", "z", "w"].map(lane).join(", ");
            let parameters = parameters.join(", ");
            let _ = writeln!(text, "fn apply{at}({parameters}) -> vec4<f32> {{ return vec4<f32>({lanes}); }}");
        }
        for (operand, from) in self.operands.iter().enumerate() {
            if let Operand::Input(input) = from {
                text.push_str(&self.load(at, operand, *input, vectors));
            }
        }
        text
    }

    fn load(&self, at: usize, operand: usize, input: usize, vectors: bool) -> String {
        let (coordinates, offset) = (self.map.space.coordinates("index"), self.map.offset(operand));
        let name = format!("load{at}_{operand}");
        if !vectors {
            return format!("fn {name}(index: u32) -> f32 {{\n{coordinates}    return x{input}[{offset}];\n}}\n");
        }
        let value = match self.map.varies(operand) {
            true => format!("w{input}[({offset}) / 4u]"),
            false => format!("vec4<f32>(x{input}[{offset}])"),
        };
        let index = "    let index = vector * 4u;\n";
        format!("fn {name}(vector: u32) -> vec4<f32> {{\n{index}{coordinates}    return {value};\n}}\n")
    }
}

#[cfg(test)]
mod tests;
