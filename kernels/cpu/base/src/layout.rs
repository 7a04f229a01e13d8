//! Layouts in which kernels keep constants: their sizes, how they are packed, and which kernels can share one.
//!
//! Products read both operands panel by panel (see `gemm`). Panels hold the columns of the right-hand matrix, or the
//! rows of the left-hand matrix, at a fixed width, step by step. The content of a panel depends on neither the side,
//! nor the other operand, nor the batch. A constant that several kernels read in one layout is therefore kept once.

pub mod integers;
pub mod narrow;
pub mod quads;
pub mod winograd;

pub use integers::FilterSizes;

use crate::elements::{elements, elements_mut};
use crate::gemm::{Panels, View, pack_panels, pack_rows, transpose};
use anabranch_op::error::KernelError;
use anabranch_op::op::WinogradTile;
use anabranch_op::tensor::Buffer;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Layout of a constant operand of products.
///
/// The constant is a stack of matrices in panels, of `f32` or of fewer bits if kernels widen them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Layout {
    /// Number of stacked matrices.
    matrices: usize,
    /// Lines of each matrix, which lie across the panels: columns of B, rows of A.
    lines: usize,
    /// Elements of each line, one for each step of the product's depth.
    depth: usize,
    /// Number of lines in a panel.
    width: usize,
    /// Order of the elements before they are packed.
    source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
enum Source {
    /// `[depth, lines]`.
    Steps,
    /// `[lines, depth]`.
    Lines,
    /// `[lines, depth / taps, taps]`, reordered to `[taps, depth / taps]` in each line.
    Windows { taps: usize },
    /// `[lines, stride bytes]`, or `[depth, lines]` without a stride: numbers of fewer bits than 32, which stay as they
    /// are.
    Narrow { bits: usize, stride: Option<usize> },
    /// `[depth, lines]` of 8-bit integers, four steps of a line next to each other; 128 is added if `flip`.
    Quads { flip: bool },
    /// Filters of 8-bit integers, each by itself (see [`integers`]); 128 is added if `flip`.
    Integers { sizes: FilterSizes, flip: bool },
    /// `[groups, maps, depth, 3 × 3]`: filters whose values at each position form a matrix per panel of output
    /// channels.
    Filters {
        #[serde(rename = "filtering")]
        winograd_tile: WinogradTile,
        groups: usize,
        maps: usize,
    },
}

/// Constant input that a kernel keeps in its own layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// Index of the input.
    pub input: usize,
    /// Layout of the constant.
    pub layout: Layout,
}

impl Layout {
    /// Returns the layout of right-hand matrices of `depth × columns`, or stored transposed.
    pub fn right(matrices: usize, [depth, columns]: [usize; 2], transposed: bool, width: usize) -> Self {
        let source = if transposed { Source::Lines } else { Source::Steps };
        Self { matrices, lines: columns, depth, width, source }
    }

    /// Returns the layout of a convolution's weights `[groups, maps, channels, taps]`: each group is a matrix of `maps`
    /// lines.
    pub fn windows([groups, maps, channels, taps]: [usize; 4], width: usize) -> Self {
        let source = if taps == 1 || channels == 1 { Source::Lines } else { Source::Windows { taps } };
        Self { matrices: groups, lines: maps, depth: channels * taps, width, source }
    }

    /// Returns the layout of weights `[groups, maps, channels, 3 × 3]` for the Winograd algorithm. Each panel of output
    /// channels of a group has one matrix for each position.
    pub fn filters([groups, maps, channels]: [usize; 3], winograd_tile: WinogradTile, width: usize) -> Self {
        let matrices = groups * maps.div_ceil(width) * winograd_tile.positions();
        let source = Source::Filters { winograd_tile, groups, maps };
        Self { matrices, lines: width, depth: channels, width, source }
    }

    /// Returns the layout of a right-hand matrix of `depth × columns` elements of `bits` bits. It is stored row by row,
    /// or column by column with `stride` bytes between columns.
    pub fn narrow([depth, columns]: [usize; 2], bits: usize, stride: Option<usize>) -> Self {
        Self { matrices: 1, lines: columns, depth, width: narrow::PANEL, source: Source::Narrow { bits, stride } }
    }

    /// Returns the layout of right-hand matrices of `depth × columns` 8-bit integers, to which 128 is added if `flip`.
    pub fn quads(matrices: usize, [depth, columns]: [usize; 2], flip: bool) -> Self {
        Self { matrices, lines: columns, depth, width: quads::PANEL, source: Source::Quads { flip } }
    }

    /// Returns the layout of the filters of an 8-bit integer convolution, to which 128 is added if `flip`.
    pub fn filters_of_integers(sizes: FilterSizes, flip: bool) -> Self {
        let source = Source::Integers { sizes, flip };
        Self { matrices: 1, lines: sizes.count, depth: sizes.depth(), width: 1, source }
    }

    /// Returns the bytes of the packed constant.
    pub fn bytes(&self) -> usize {
        match self.source {
            Source::Narrow { bits, .. } => narrow::panel_bytes(self.depth, bits) * self.lines.div_ceil(self.width),
            Source::Quads { .. } => self.matrices * self.quads_bytes(),
            Source::Integers { sizes, .. } => sizes.bytes(),
            _ => self.matrices * self.matrix_floats() * size_of::<f32>(),
        }
    }

    /// Returns the bytes of a matrix of 8-bit integers.
    fn quads_bytes(&self) -> usize {
        quads::panel_bytes(self.depth) * self.lines.div_ceil(self.width)
    }

    /// Packs the elements `raw` into `packed`, which has [`bytes`](Self::bytes) bytes. O(elements).
    ///
    /// # Panics
    /// If `raw` or `packed` has a size other than the layout's.
    pub fn pack(&self, raw: &[u8], packed: &mut [u8]) {
        let (matrices, matrix) = self.raw();
        assert_eq!(raw.len(), matrices * matrix, "a constant is of its spec's size");
        assert_eq!(packed.len(), self.bytes(), "packed constants are of their layout's size");
        self.pieces(raw.len()).for_each(|piece| self.pack_piece(&piece, &raw[piece.clone()], packed));
    }

    /// Returns ranges of the raw constant's bytes that can be packed one by one. They are in order, have about `bytes`
    /// bytes or less, and none spans two matrices.
    pub fn pieces(&self, bytes: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let unit = match self.source {
            Source::Steps => self.lines * size_of::<f32>(),
            Source::Lines | Source::Windows { .. } => self.width * self.depth * size_of::<f32>(),
            Source::Narrow { stride: Some(stride), .. } => self.width * stride,
            Source::Narrow { bits, stride: None } => self.lines * bits / 8,
            Source::Quads { .. } => self.lines,
            Source::Integers { .. } => self.depth,
            Source::Filters { .. } => self.width * self.depth * 9 * size_of::<f32>(),
        };
        let (matrices, matrix) = self.raw();
        let unit = unit.max(1);
        let length = (bytes / unit).max(1) * unit;
        let starts = move |number| (0..matrix).step_by(length).map(move |start| (number * matrix, start));
        (0..matrices).flat_map(starts).map(move |(at, start)| at + start..at + matrix.min(start + length))
    }

    /// Returns the number of matrices of the raw constant, and the bytes of each.
    fn raw(&self) -> (usize, usize) {
        match self.source {
            Source::Filters { groups, maps, .. } => (groups, maps * self.depth * 9 * size_of::<f32>()),
            Source::Narrow { stride: Some(stride), .. } => (1, self.lines * stride),
            Source::Narrow { bits, stride: None } => (1, self.lines * self.depth * bits / 8),
            Source::Quads { .. } | Source::Integers { .. } => (self.matrices, self.lines * self.depth),
            _ => (self.matrices, self.lines * self.depth * size_of::<f32>()),
        }
    }

    /// Packs one of the [`pieces`](Self::pieces), whose bytes are `raw`, to its position in `packed`. O(elements of the
    /// piece).
    ///
    /// # Panics
    /// If `piece` is not one of the pieces, or `packed` has a size other than the layout's.
    pub fn pack_piece(&self, piece: &Range<usize>, raw: &[u8], packed: &mut [u8]) {
        assert_eq!(packed.len(), self.bytes(), "packed constants are of their layout's size");
        let Self { lines, depth, width, .. } = *self;
        if let Source::Narrow { bits, stride } = self.source {
            narrow::pack(raw, piece.start, [depth, lines, bits], stride, packed);
            return;
        }
        if let Source::Quads { flip } = self.source {
            let matrix = lines * depth;
            let packed = &mut packed[piece.start / matrix * self.quads_bytes()..][..self.quads_bytes()];
            quads::pack(raw, piece.start % matrix / lines, [depth, lines], flip, packed);
            return;
        }
        if let Source::Integers { sizes, flip } = self.source {
            sizes.pack(raw, piece.start / depth.max(1), flip, packed);
            return;
        }
        if let Source::Filters { winograd_tile, maps, .. } = self.source {
            let (filters, panel) = (width * depth * 9, winograd_tile.positions() * depth * width);
            let (start, group) = (piece.start / size_of::<f32>(), maps * depth * 9);
            let first = start / group * maps.div_ceil(width) + start % group / filters;
            let packed = &mut elements_mut::<f32>(packed)[first * panel..];
            for (filters, panel) in elements(raw).chunks(filters).zip(packed.chunks_exact_mut(panel)) {
                winograd::transform_filters(winograd_tile, filters, depth, width, panel);
            }
            return;
        }
        let (panel, matrix) = (width * depth, lines * depth);
        let start = piece.start / size_of::<f32>();
        let packed = &mut elements_mut::<f32>(packed)[start / matrix * self.matrix_floats()..][..self.matrix_floats()];
        let (raw, start) = (elements::<f32>(raw), start % matrix);
        if self.source == Source::Steps {
            pack_rows(raw, start / lines, [depth, lines, width], packed);
            return;
        }
        // Orders the lines of one panel at a time, so that there is no second copy of the whole constant.
        let mut ordered = Vec::new();
        for (lines, panel) in raw.chunks(panel).zip(packed[start / panel * panel..].chunks_exact_mut(panel)) {
            let mut lines = lines;
            if let Source::Windows { taps } = self.source {
                ordered.resize(lines.len(), 0.0);
                for (from, to) in lines.chunks_exact(depth).zip(ordered.chunks_exact_mut(depth)) {
                    transpose(from, (taps, 1), (depth / taps, taps), to, depth / taps);
                }
                lines = &ordered;
            }
            let count = lines.len() / depth;
            pack_panels(View::new(lines, depth, count, true), 0..depth, 0..count, width, panel);
        }
    }

    /// Returns matrix `index` of a constant in this layout, and the matrices after it.
    #[inline]
    pub fn panels<'a>(&self, packed: &'a [u8], index: usize) -> Panels<'a> {
        let first = index * self.matrix_floats();
        Panels::new(&elements(packed)[first..], self.depth, self.lines, self.width)
    }

    #[inline]
    fn matrix_floats(&self) -> usize {
        Panels::floats(self.width, self.depth, self.lines)
    }
}

/// Constant input of a kernel in its layout, once the kernel has received it.
pub struct Packed {
    /// Input and layout of the constant.
    pub packing: Packing,
    buffer: Option<Arc<Buffer>>,
}

impl Packed {
    /// Creates the constant of an input, before the kernel receives it.
    pub fn new(input: usize, layout: Layout) -> Self {
        Self { packing: Packing { input, layout }, buffer: None }
    }

    /// Takes the packed constant, if it has the layout's size.
    pub fn keep(&mut self, buffer: &Arc<Buffer>) {
        self.buffer = Some(Arc::clone(buffer)).filter(|buffer| buffer.len() == self.packing.layout.bytes());
    }

    /// # Errors
    /// If the kernel has not received the constant.
    pub fn check(&self) -> Result<(), KernelError> {
        let missing = || KernelError::Packed { input: self.packing.input };
        self.buffer.as_ref().map(|_| ()).ok_or_else(missing)
    }

    /// Returns its matrix `index`, after [`check`](Self::check).
    #[inline]
    pub fn panels(&self, index: usize) -> Panels<'_> {
        self.packing.layout.panels(self.bytes(), index)
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| buffer.bytes())
    }
}

/// Input that a kernel reads only in a layout: packed once if it is constant, else by every call.
pub struct PackedInput {
    packed: Packed,
    constant: bool,
}

impl PackedInput {
    /// Creates an input that is packed once if `constants` says that it is constant.
    pub fn new(input: usize, layout: Layout, constants: &[bool]) -> Self {
        Self { packed: Packed::new(input, layout), constant: constants.get(input) == Some(&true) }
    }

    /// Returns the constants that the kernel needs packed.
    pub fn packings(&self) -> Vec<Packing> {
        self.constant.then(|| self.packed.packing.clone()).into_iter().collect()
    }

    /// Takes the constants that [`packings`](Self::packings) lists.
    pub fn keep(&mut self, packed: &[Arc<Buffer>]) {
        packed.iter().for_each(|packed| self.packed.keep(packed));
    }

    /// Returns the numbers of scratch memory that [`matrices`](Self::matrices) needs.
    pub fn scratch_floats(&self) -> usize {
        if self.constant { 0 } else { self.packed.packing.layout.bytes() / size_of::<f32>() }
    }

    /// Returns the matrices in panels, of a call with these inputs.
    ///
    /// # Errors
    /// If the kernel has not received the constant.
    pub fn matrices<'a>(&'a self, inputs: &[&[u8]], scratch: &'a mut [f32]) -> Result<PackedMatrices<'a>, KernelError> {
        let Packing { input, layout } = &self.packed.packing;
        if !self.constant {
            let packed = bytemuck::cast_slice_mut(&mut scratch[..layout.bytes() / size_of::<f32>()]);
            layout.pack(inputs[*input], packed);
            return Ok(PackedMatrices { layout, packed });
        }
        self.packed.check()?;
        Ok(PackedMatrices { layout, packed: self.packed.bytes() })
    }
}

/// Matrices in panels.
#[derive(Clone, Copy)]
pub struct PackedMatrices<'a> {
    layout: &'a Layout,
    packed: &'a [u8],
}

impl<'a> PackedMatrices<'a> {
    /// Returns the packed constant unchanged.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.packed
    }

    /// Returns matrix `index`.
    #[inline]
    pub fn panels(&self, index: usize) -> Panels<'a> {
        self.layout.panels(self.packed, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::MicroKernel;

    fn packed(layout: &Layout, data: &[f32]) -> Buffer {
        let mut packed = Buffer::zeroed(layout.bytes());
        packed.bytes_mut().fill(0xff);
        let raw: &[u8] = bytemuck::cast_slice(data);
        layout.pack(raw, packed.bytes_mut());
        for bytes in [1, 5_000] {
            let mut by_pieces = Buffer::zeroed(layout.bytes());
            by_pieces.bytes_mut().fill(0xff);
            let pieces: Vec<_> = layout.pieces(bytes).collect();
            assert!(pieces.iter().flat_map(Range::clone).eq(0..raw.len()), "the pieces are the whole");
            pieces.iter().for_each(|piece| layout.pack_piece(piece, &raw[piece.clone()], by_pieces.bytes_mut()));
            assert_eq!(by_pieces.bytes(), packed.bytes());
        }
        packed
    }

    /// Returns the element of a line at a step.
    fn found(panels: &Panels<'_>, step: usize, line: usize) -> f32 {
        panels.from(step, line)[0]
    }

    #[test]
    fn panels_hold_the_lines_step_by_step_and_zeros() {
        let data: Vec<f32> = (0..2 * 70 * 45).map(|i| i as f32).collect();
        let widths = MicroKernel::of_all_sizes().into_iter().flat_map(|kernel| [kernel.columns, kernel.rows, 1]);
        for (width, (depth, lines, transposed)) in widths.flat_map(|width| {
            [(70, 45, false), (45, 70, true), (1, 1, false), (70, 45, true), (0, 3, false)].map(|case| (width, case))
        }) {
            let layout = Layout::right(2, [depth, lines], transposed, width);
            let packed = packed(&layout, &data[..2 * depth * lines]);
            for matrix in 0..if depth == 0 { 0 } else { 2 } {
                let view = View::new(&data[matrix * depth * lines..][..depth * lines], depth, lines, transposed);
                let panels = layout.panels(packed.bytes(), matrix);
                for (step, line) in (0..depth).flat_map(|p| (0..lines).map(move |j| (p, j))) {
                    assert_eq!(found(&panels, step, line), view.from(step, line)[0], "{layout:?} ({step}, {line})");
                }
            }
            let sum = |values: &[f32]| values.iter().map(|x| f64::from(*x)).sum::<f64>();
            assert_eq!(
                sum(bytemuck::cast_slice(packed.bytes())),
                sum(&data[..2 * depth * lines]),
                "padding is not zero"
            );
        }
    }

    #[test]
    fn filters_are_matrices_of_each_panel() {
        let [groups, maps, channels] = [3, 21, 5];
        let data: Vec<f32> = (0..groups * maps * channels * 9).map(|i| (i % 31) as f32).collect();
        for (winograd_tile, width) in
            [(WinogradTile::Two, 8), (WinogradTile::Two, 32), (WinogradTile::Four, 16), (WinogradTile::Four, 48)]
        {
            let layout = Layout::filters([groups, maps, channels], winograd_tile, width);
            let packed = packed(&layout, &data);
            let positions = winograd_tile.positions();
            for at in 0..groups * maps * channels {
                let (group, map, channel) = (at / channels / maps, at / channels % maps, at % channels);
                // A filter's value at the points (∞, ∞) is its last element.
                let panel = group * maps.div_ceil(width) + map / width;
                let panels = layout.panels(packed.bytes(), panel * positions + positions - 1);
                let element = data[at * 9 + 8];
                assert_eq!(found(&panels, channel, map % width), element, "{winograd_tile:?}, filter {at}");
            }
        }
    }

    #[test]
    fn windows_are_in_the_order_of_their_elements() {
        let [groups, maps, channels, taps] = [2, 21, 3, 9];
        let data: Vec<f32> = (0..groups * maps * channels * taps).map(|i| i as f32).collect();
        for width in [1, 8, 16, 48] {
            let layout = Layout::windows([groups, maps, channels, taps], width);
            let packed = packed(&layout, &data);
            for (at, value) in data.iter().enumerate() {
                let (tap, channel, map) = (at % taps, at / taps % channels, at / taps / channels % maps);
                let panels = layout.panels(packed.bytes(), at / taps / channels / maps);
                assert_eq!(found(&panels, tap * channels + channel, map), *value);
            }
        }
    }
}
