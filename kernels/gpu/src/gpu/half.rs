//! Matrix products by the matrix units of GPUs (cooperative matrices), for nodes that allow less precision than `f32`.
//!
//! One dispatch for each operand rounds it to `f16` in scratch memory, one multiplies, and one adds up the parts,
//! undoes the scales and stores. An element x of a row of A or a column of B with the greatest magnitude g becomes h or
//! h + l / 2¹¹, both of 11 bits:
//!
//! | precision | error of an element | products |
//! |---|---|---|
//! | `f16` | at most 2⁻¹¹·\|x\|, or 2⁻²⁷·g | h·h |
//! | `f16x3` | at most 2⁻²²·\|x\| + 2⁻³⁸·g | h·h + (h·l + l·h) / 2¹¹ |
//!
//! S is the sum of the magnitudes of an output's products, K the inner dimension, and N its fragments. Matrix units are
//! taken to add products to within a unit in the last place of the greatest magnitude that occurs. Then the bounds of
//! an output's error are:
//!
//! - `f16`: (2⁻¹⁰ + 2⁻²² + N·2⁻²³)·S + 2⁻²⁶·K·g·g;
//! - `f16x3`: (3·2⁻²² + (K/64 + 9)·2⁻²³)·S + 2⁻³⁶·K·g·g.
//!
//! Products with an infinity are infinite or NaN.

use super::Shader;
use super::kernel::Recorder;
use super::limits::Matrices;
use super::product::{Extent, Parts};
use anabranch_op::error::KernelError;
use anabranch_op::op::Precision;
use std::fmt::Write;
use std::ops::Range;

/// Elements to which the inner dimension is padded: a multiple of the sides of all fragments.
const DEPTH: usize = 16;
/// Lines to which operands are padded: a multiple of the rows and columns of a group.
const LINES: usize = 128;
/// Lines that a group of threads rounds.
const ROUNDED: usize = 16;
/// Subgroups of a workgroup, two along each side.
const SUBGROUPS: usize = 4;
/// Fragments of the result along the columns of one subgroup.
const ACROSS: usize = 4;
/// Side of the fragments of most devices, for which parts are chosen.
const USUAL_SIDE: usize = 16;
/// Elements of the inner dimension after which products of two terms are added to the sums.
const CHUNK: usize = 64;
/// Minimum elements of the inner dimension in a part.
const LEAST_DEPTH: usize = 256;
/// Number of workgroups that the parts of the inner dimension should make together.
const PARTS_GROUPS: usize = 264;

/// Declares `store` for the last dispatch of a product.
type Store<'s, 'a> = &'s dyn Fn(&Recorder<'a>, &mut Shader<'a>) -> Result<(), KernelError>;

/// One operand: its matrices, each of lines that are rows of A or columns of B.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub(super) matrices: usize,
    pub(super) lines: usize,
    /// Elements from one line to the next, and along a line.
    pub(super) strides: [usize; 2],
}

/// A product by matrix units. Its layout in scratch memory depends on the node's shapes alone.
#[derive(Clone, Debug)]
pub(super) struct Half {
    /// Halves of an element.
    terms: usize,
    whole: Extent,
    k: usize,
    parts: Parts,
    operands: [Operand; 2],
}

/// Offsets in scratch memory, in words.
struct Layout {
    halves: [usize; 2],
    exponents: [usize; 2],
    sums: usize,
    end: usize,
}

impl Half {
    /// Creates a product of the whole extent; `None` if it is to be computed in `f32`.
    pub(super) fn new(precision: Precision, whole: Extent, k: usize, operands: [Operand; 2]) -> Option<Self> {
        let terms = match precision.of_product([whole.m, whole.n, k]) {
            Precision::F32 => return None,
            Precision::F16x3 => 2,
            Precision::F16 => 1,
        };
        let groups = groups_of([terms, USUAL_SIDE], whole);
        let parts = Parts::new(k.next_multiple_of(DEPTH), LEAST_DEPTH, groups, PARTS_GROUPS);
        Some(Self { terms, whole, k, parts, operands })
    }

    /// Returns the number of matrices of an operand.
    pub(super) fn matrices(&self, operand: usize) -> usize {
        self.operands[operand].matrices
    }

    /// Returns the bytes of scratch memory.
    pub(super) fn scratch_bytes(&self) -> u64 {
        self.layout().end as u64 * 4
    }

    /// Returns the terms, and the parts: they decide the order of a sum.
    pub(super) fn summation(&self) -> Vec<usize> {
        [&[usize::MAX, self.terms][..], &self.parts.summation()].concat()
    }

    /// Returns the passes of a thread through the loops of the longest dispatch.
    pub(super) fn passes(&self) -> usize {
        let rounds = self.k.div_ceil(ROUNDED) + ROUNDED + self.padded_k().div_ceil(2 * ROUNDED) * (1 + self.terms);
        let multiplies = self.parts.depth() / 8 + self.parts.depth().div_ceil(CHUNK);
        rounds.max(multiplies)
    }

    /// Records a product of an extent; `batches` declares `a_batch` and `b_batch`, which find the matrices of a batch,
    /// and `rounded` are the matrices that the extent needs.
    pub(super) fn record<'a>(
        &self,
        recorder: &mut Recorder<'a>,
        extent: Extent,
        rounded: [Range<usize>; 2],
        batches: &dyn Fn(&mut Shader<'_>),
        store: Store<'_, 'a>,
    ) -> Result<(), KernelError> {
        let Matrices { side, .. } = recorder.matrices()?;
        for (operand, range) in rounded.into_iter().enumerate() {
            self.round(recorder, operand, range, side as usize)?;
        }
        self.multiply(recorder, extent, batches)?;
        self.sum(recorder, extent, batches, store)
    }

    /// Records the products of the rounded operands.
    fn multiply(
        &self,
        recorder: &mut Recorder<'_>,
        extent: Extent,
        batches: &dyn Fn(&mut Shader<'_>),
    ) -> Result<(), KernelError> {
        let matrices = recorder.matrices()?;
        let mut shader = self.product(extent, matrices);
        self.declare(&mut shader, extent, batches);
        shader.write("halves", "f16", recorder.scratch()?).write("sums", "f32", recorder.scratch()?);
        let groups = groups_of([self.terms, matrices.side as usize], extent);
        recorder.dispatch(&shader, groups * self.parts.summation()[0])
    }

    /// Records the sum of the parts and terms.
    fn sum<'a>(
        &self,
        recorder: &mut Recorder<'a>,
        extent: Extent,
        batches: &dyn Fn(&mut Shader<'_>),
        store: Store<'_, 'a>,
    ) -> Result<(), KernelError> {
        let mut shader = Shader::new("half_sum", include_str!("half_sum.wgsl"));
        self.declare(&mut shader, extent, batches);
        shader.constant("TERMS", self.terms).parameter("m", extent.m).parameter("n", extent.n);
        shader.parameter("count", extent.outputs()).read("scratch", "u32", recorder.scratch()?);
        store(recorder, &mut shader)?;
        recorder.dispatch_each(&shader, extent.outputs())
    }

    /// Records the rounding of some matrices of an operand.
    fn round(
        &self,
        recorder: &mut Recorder<'_>,
        operand: usize,
        range: Range<usize>,
        side: usize,
    ) -> Result<(), KernelError> {
        let Operand { lines, strides: [line_stride, depth_stride], .. } = self.operands[operand];
        let (layout, blocks) = (self.layout(), lines.next_multiple_of(LINES) / ROUNDED);
        let groups = range.len() * blocks;
        let mut shader = Shader::new("half_lines", include_str!("half_lines.wgsl"));
        shader.constant("SIDE", side).constant("AREA", side * side).constant("TERMS", self.terms);
        shader.parameter("first", range.start).parameter("blocks", blocks).parameter("groups", groups);
        shader.parameter("lines", lines).parameter("k", self.k).parameter("padded_k", self.padded_k());
        shader.parameter("area", lines * self.k);
        shader.parameter("line_stride", line_stride).parameter("depth_stride", depth_stride);
        shader.parameter("halves", layout.halves[operand]).parameter("exponents", layout.exponents[operand]);
        // Neighbouring threads read neighbouring memory.
        let place = if depth_stride == 1 { "thread / 16u, thread % 16u" } else { "thread % 16u, thread / 16u" };
        shader.code(&format!("fn place(thread: u32) -> vec2<u32> {{\n    return vec2<u32>({place});\n}}\n"));
        shader.read("x", "f32", recorder.input(operand)?).write("scratch", "u32", recorder.scratch()?);
        recorder.dispatch(&shader, groups)
    }

    /// Returns the shader that multiplies on a device with these matrix units, without its buffers.
    fn product<'a>(&self, extent: Extent, matrices: Matrices) -> Shader<'a> {
        let [side, subgroup] = [matrices.side, matrices.subgroup].map(|count| count as usize);
        let mut shader = Shader::new("half_product", include_str!("half_product.wgsl"));
        shader.enable("f16").enable("wgpu_cooperative_matrix");
        let [rows, columns] = sums_of([self.terms, side]);
        for (name, value) in [
            ("THREADS", SUBGROUPS * subgroup),
            ("SIDE", side),
            ("AREA", side * side),
            ("TERMS", self.terms),
            ("ROWS", rows),
            ("COLUMNS", columns),
            ("GROUP_M", 2 * rows),
            ("GROUP_N", 2 * columns),
            ("CHUNK", CHUNK),
        ] {
            shader.constant(name, value);
        }
        let [tiles_m, tiles_n] = tiles([self.terms, side], extent);
        shader.parameter("tiles_m", tiles_m).parameter("tiles_n", tiles_n);
        shader.parameter("groups", groups_of([self.terms, side], extent));
        shader.parameter("k", self.padded_k()).parameter("depth", self.parts.depth());
        let text = Fragments { side, rows: rows / side, columns: ACROSS, terms: self.terms };
        shader.fill("accumulators", &text.accumulators());
        shader.fill("begin_chunk", &text.begin_chunk()).fill("multiply", &text.multiply());
        shader.fill("end_chunk", &text.end_chunk()).fill("store", &text.store());
        shader
    }

    /// Declares what the last two dispatches have in common.
    fn declare(&self, shader: &mut Shader<'_>, extent: Extent, batches: &dyn Fn(&mut Shader<'_>)) {
        let layout = self.layout();
        let [a_lines, b_lines] = self.operands.map(|operand| operand.lines.next_multiple_of(LINES));
        let [a_area, b_area] = self.operands.map(|operand| operand.lines * self.k);
        shader.parameter("parts", self.parts.summation()[0]);
        shader.parameter("first", extent.first).parameter("batches", extent.batches);
        shader.parameter("columns", b_lines).parameter("result", a_lines * b_lines).parameter("sums", layout.sums);
        shader.parameter("a_lines", a_lines).parameter("b_lines", b_lines);
        shader.parameter("a_area", a_area).parameter("b_area", b_area);
        // The first two regions are of halves, and the product counts in halves.
        shader.parameter("a_halves", layout.halves[0] * 2).parameter("b_halves", layout.halves[1] * 2);
        shader.parameter("a_exponents", layout.exponents[0]).parameter("b_exponents", layout.exponents[1]);
        batches(shader);
    }

    fn layout(&self) -> Layout {
        let mut end = 0;
        let mut take = |words: usize| {
            let start = end;
            end += words;
            start
        };
        let lines = self.operands.map(|operand| operand.matrices * operand.lines.next_multiple_of(LINES));
        let halves = lines.map(|lines| take(lines * self.padded_k() * self.terms / 2));
        let exponents = lines.map(&mut take);
        let [m, n] = [self.whole.m, self.whole.n].map(|lines| lines.next_multiple_of(LINES));
        let sums = take(self.terms * self.parts.summation()[0] * self.whole.batches * m * n);
        Layout { halves, exponents, sums, end }
    }

    fn padded_k(&self) -> usize {
        self.k.next_multiple_of(DEPTH)
    }
}

/// Returns the rows and columns of sums of one subgroup, for elements of some terms and fragments of `side`. A group
/// has twice as many.
fn sums_of([terms, side]: [usize; 2]) -> [usize; 2] {
    [ACROSS / terms * side, ACROSS * side]
}

/// Returns the groups along rows and columns of one matrix.
fn tiles(shape: [usize; 2], extent: Extent) -> [usize; 2] {
    let [rows, columns] = sums_of(shape);
    [extent.m.next_multiple_of(LINES) / (2 * rows), extent.n.next_multiple_of(LINES) / (2 * columns)]
}

/// Returns the groups of one part.
fn groups_of(shape: [usize; 2], extent: Extent) -> usize {
    tiles(shape, extent).into_iter().fold(extent.batches, usize::saturating_mul)
}

/// Text of a subgroup's work on its fragments.
struct Fragments {
    side: usize,
    /// Fragments along rows and columns.
    rows: usize,
    columns: usize,
    terms: usize,
}

impl Fragments {
    /// Returns the text of each fragment of the result.
    fn each(&self, text: impl Fn(usize, usize) -> String) -> String {
        (0..self.rows)
            .flat_map(|row| (0..self.columns).map(move |column| (row, column)))
            .map(|(r, c)| text(r, c))
            .collect()
    }

    fn kind(&self, element: &str, role: char) -> String {
        format!("coop_mat{0}x{0}<{element}, {role}>", self.side)
    }

    fn accumulators(&self) -> String {
        let zero = self.kind("f32", 'C');
        self.each(|row, column| match self.terms {
            1 => format!("    var high{row}_{column} = {zero}();\n"),
            _ => format!("    var sum{row}_{column} = {zero}();\n    var low{row}_{column} = {zero}();\n"),
        })
    }

    fn begin_chunk(&self) -> String {
        let zero = self.kind("f32", 'C');
        self.each(|row, column| match self.terms {
            1 => String::new(),
            _ => format!("        var high{row}_{column} = {zero}();\n"),
        })
    }

    /// Returns the loads and products of one step. Fragments of A are held, those of B are loaded column by column.
    fn multiply(&self) -> String {
        let mut text = String::new();
        let terms = ["h", "l"].iter().take(self.terms).enumerate();
        // Lines of both operands lie along the inner dimension, so that rows of A and columns of B are contiguous.
        let load = |text: &mut String, name: &str, line: usize| {
            let (role, call) = if name == "a" { ('A', "coopLoadT") } else { ('B', "coopLoad") };
            let kind = self.kind("f16", role);
            for (at, term) in terms.clone() {
                let place = format!("{name}_at + {line}u * step + {at}u * AREA");
                let _ = writeln!(text, "            let {name}{term}{line} = {call}<{kind}>(&halves[{place}], SIDE);");
            }
        };
        for row in 0..self.rows {
            load(&mut text, "a", row);
        }
        for column in 0..self.columns {
            load(&mut text, "b", column);
            for row in 0..self.rows {
                let mut add = |to: &str, a: &str, b: &str| {
                    let to = format!("{to}{row}_{column}");
                    let _ = writeln!(text, "            {to} = coopMultiplyAdd(a{a}{row}, b{b}{column}, {to});");
                };
                add("high", "h", "h");
                if self.terms == 2 {
                    add("low", "l", "h");
                    add("low", "h", "l");
                }
            }
        }
        text
    }

    fn end_chunk(&self) -> String {
        self.each(|row, column| match self.terms {
            1 => String::new(),
            _ => format!("        sum{row}_{column} = sum{row}_{column} + high{row}_{column};\n"),
        })
    }

    /// Returns the stores. naga 30 needs names of all that a store takes.
    fn store(&self) -> String {
        let names = if self.terms == 1 { &["high"][..] } else { &["sum", "low"] };
        let mut text = String::from("    let plane = parameters.parts * parameters.batches * parameters.result;\n");
        for (term, name) in names.iter().enumerate() {
            text += &self.each(|row, column| {
                let (value, side) = (format!("{name}{row}_{column}"), self.side);
                let place = format!("corner + {term}u * plane + {}u * stride + {}u", row * side, column * side);
                format!(
                    "    let {value}_kept = {value};\n    let {value}_at = {place};\n    \
                     coopStoreT({value}_kept, &sums[{value}_at], stride);\n"
                )
            });
        }
        text
    }
}

#[cfg(test)]
mod tests;
