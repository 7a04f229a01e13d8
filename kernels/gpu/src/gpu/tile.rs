//! Tiled matrix products: the body that matrix products and convolutions share, unrolled for a tile's sizes.

use super::Shader;
use super::limits::{THREADS, WORKGROUP_BYTES};
use super::product::{Extent, Parts};
use std::fmt::Write;

/// Sizes of a tile; see `tile.wgsl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Rows and columns of outputs of one workgroup.
    sides: [usize; 2],
    /// Rows and columns of outputs of one thread: 4 or 8.
    block: usize,
    /// Minimum elements of the inner dimension for which a part is worth writing and reading its sums.
    least_depth: usize,
}

/// Tiles of large products, the largest first: 16 multiply-adds for each vector read from workgroup memory.
const LARGE: [Tile; 3] = [
    Tile { sides: [128, 128], block: 8, least_depth: 256 },
    Tile { sides: [128, 64], block: 8, least_depth: 256 },
    Tile { sides: [64, 64], block: 8, least_depth: 64 },
];
/// Tile of small products, which must still make several workgroups.
const SMALL: Tile = Tile { sides: [32, 32], block: 4, least_depth: 64 };

/// Elements of the inner dimension in one step.
const DEPTH: usize = 8;
/// Threads that fetch the neighbouring `k` of one line, each a vector of four.
const QUADS: usize = DEPTH / 4;

/// Number of workgroups below which a smaller tile occupies a large device better.
const ENOUGH_GROUPS: usize = 160;
/// Number of workgroups that the parts of the inner dimension should make together.
const PARTS_GROUPS: usize = 264;

/// Index of a dense operand that runs through neighbouring memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Inner dimension.
    Depth,
    /// Rows of A or columns of B.
    Side,
}

/// Access to an operand's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Strided matrix. If its lines consist of aligned `vectors` of four, these are read whole.
    Dense { order: Order, vectors: bool },
    /// Columns of windows into images, found by a table of taps; only for B.
    Windows,
}

impl Access {
    /// Whether the operand's buffer is an array of vectors of four.
    pub(crate) fn is_in_vectors(self) -> bool {
        matches!(self, Self::Dense { vectors: true, .. })
    }
}

/// One of the two operands in the text of a shader.
struct Operand {
    name: char,
    access: Access,
    /// Vectors of its side of the tile.
    vectors: usize,
    /// Threads of the workgroup.
    threads: usize,
    /// Vectors of a thread's block along its side.
    halves: usize,
}

impl Tile {
    /// Returns the tile for a product of these sizes: the largest that makes enough workgroups, together with parts of
    /// the inner dimension.
    pub(crate) fn new(whole: Extent, k: usize) -> Self {
        #[cfg(test)]
        if let Some(tile) = forced::tile() {
            return tile;
        }
        let groups = |tile: &Self| tile.groups(whole).saturating_mul((k / tile.least_depth).max(1));
        let covers = |Self { sides: [m, n], .. }: &Self| whole.m * 2 > *m && whole.n * 2 > *n;
        let fits = |tile: &Self| covers(tile) && groups(tile) >= ENOUGH_GROUPS;
        LARGE.into_iter().find(fits).unwrap_or(SMALL)
    }

    /// Returns the workgroups of one part.
    fn groups(&self, extent: Extent) -> usize {
        self.counts(extent).into_iter().fold(extent.batches, usize::saturating_mul)
    }

    /// Returns the tiles along rows and columns.
    fn counts(&self, extent: Extent) -> [usize; 2] {
        [extent.m.div_ceil(self.sides[0]), extent.n.div_ceil(self.sides[1])]
    }

    /// Returns the parts of an inner dimension of `k`.
    pub(crate) fn parts(&self, whole: Extent, k: usize) -> Parts {
        Parts::new(k, self.least_depth, self.groups(whole), PARTS_GROUPS)
    }

    /// Declares the tile's numbers and its body for an inner dimension of `k`. Results are stored as `vectors` of four
    /// columns, or one by one. Returns the workgroups of a part.
    pub(crate) fn declare(
        &self,
        shader: &mut Shader<'_>,
        extent: Extent,
        k: usize,
        [a, b]: [Access; 2],
        vectors: bool,
    ) -> usize {
        let [tiles_m, tiles_n] = self.counts(extent);
        shader.parameter("k", k).parameter("tiles_m", tiles_m).parameter("tiles_n", tiles_n);
        let [m, n] = self.sides;
        for (name, value) in [
            ("TILE_M", m),
            ("TILE_N", n),
            ("TILE_K", DEPTH),
            ("VECTORS_M", m / 4),
            ("VECTORS_N", n / 4),
            ("THREAD_M", self.block),
            ("THREAD_N", self.block),
            ("THREADS", self.threads()),
            ("SQUADS_N", n / (8 * self.block)),
            ("PIECES", self.pieces()),
        ] {
            shader.constant(name, value);
        }
        shader.code(include_str!("tile.wgsl"));
        let (threads, halves) = (self.threads(), self.block / 4);
        let operands = [('a', a, m), ('b', b, n)].map(|(name, access, side)| Operand {
            name,
            access,
            vectors: side / 4,
            threads,
            halves,
        });
        let each = |text: &dyn Fn(&Operand) -> String| operands.iter().map(text).collect::<String>();
        shader.fill("a_four", operands[0].four());
        shader.fill("b_four", operands[1].four());
        shader.fill("places", &each(&|operand| operand.places()));
        shader.fill("accumulators", &self.accumulators());
        shader.fill("fetch_first", &each(&|operand| operand.fetch_first()));
        shader.fill("windows_first", &each(&|operand| operand.keep_windows("first_k")));
        shader.fill("mask_first", &each(&|operand| operand.mask("first_k")));
        shader.fill("keep_first", &each(&|operand| operand.keep("    ", "0u")));
        shader.fill("fetch_next", &each(&|operand| operand.fetch("        next_", "next")));
        shader.fill("multiply", &self.multiply(&operands));
        shader.fill("windows_next", &each(&|operand| operand.keep_windows("next")));
        shader.fill("mask_next", &each(&|operand| operand.mask("next")));
        shader.fill("keep_next", &each(&|operand| operand.keep("        ", "buffer")));
        shader.fill("pieces", &self.cases());
        shader.fill("store", if vectors { STORE_VECTOR } else { STORE_ELEMENTS });
        self.groups(extent)
    }

    /// Returns the passes of a thread through the loops over `k` elements of the inner dimension and over its outputs.
    pub(crate) fn passes(&self, k: usize) -> usize {
        k.div_ceil(DEPTH) + self.pieces() * 5
    }

    /// Returns the elements to which a kernel pads a table of the inner dimension's `k` elements.
    pub(crate) fn padded(k: usize) -> usize {
        k.next_multiple_of(DEPTH)
    }

    /// Returns the rows and columns of outputs of one workgroup.
    #[cfg(test)]
    pub(crate) fn sides(&self) -> [usize; 2] {
        self.sides
    }

    const fn threads(&self) -> usize {
        self.sides[0] * self.sides[1] / (self.block * self.block)
    }

    const fn workgroup_bytes(&self) -> usize {
        2 * DEPTH * (self.sides[0] + self.sides[1]) * 4
    }

    /// Returns the vectors of a thread's outputs.
    fn pieces(&self) -> usize {
        self.block * self.block / 4
    }

    fn accumulators(&self) -> String {
        let names = (0..self.block).flat_map(|row| (0..self.block / 4).map(move |vector| (row, vector)));
        names.map(|(row, vector)| format!("    var sum{row}_{vector} = vec4<f32>();\n")).collect()
    }

    /// Returns the multiply-adds of a step.
    fn multiply(&self, operands: &[Operand; 2]) -> String {
        let mut text = String::new();
        let halves = self.block / 4;
        for k in 0..DEPTH {
            for operand in operands {
                for half in 0..halves {
                    let (name, place) = (operand.name, operand.read_place(k, half));
                    let read = format!("{name}_tile[buffer][{k}u][{place}]");
                    let vector = match operand.is_along_depth() {
                        true => format!("vec4<f32>({read}[0], {read}[1], {read}[2], {read}[3])"),
                        false => read,
                    };
                    let _ = writeln!(text, "        let {name}{k}_{half} = {vector};");
                }
            }
            for row in 0..self.block {
                let component = ["x", "y", "z", "w"][row % 4];
                for vector in 0..halves {
                    let sum = format!("sum{row}_{vector}");
                    let a = format!("vec4<f32>(a{k}_{}.{component})", row / 4);
                    let _ = writeln!(text, "        {sum} = fma({a}, b{k}_{vector}, {sum});");
                }
            }
        }
        text
    }

    /// Returns the cases of a switch that chooses one vector of a thread's outputs.
    fn cases(&self) -> String {
        let halves = self.block / 4;
        let case =
            |piece| format!("            case {piece}u: {{ values = sum{}_{}; }}\n", piece / halves, piece % halves);
        (0..self.pieces()).map(case).collect()
    }
}

impl Operand {
    /// Whether vectors of neighbouring `k` are fetched, and stored by components.
    fn is_along_depth(&self) -> bool {
        matches!(self.access, Access::Dense { order: Order::Depth, .. })
    }

    /// Returns the type of four elements of workgroup memory. Threads store the components of one vector if `k` are
    /// neighbours, and a thread that writes one component of a `vec4` may write the others, too.
    fn four(&self) -> &'static str {
        if self.is_along_depth() { "array<f32, 4>" } else { "vec4<f32>" }
    }

    /// Returns the vectors that a thread fetches in one step.
    fn slots(&self) -> usize {
        self.vectors * DEPTH / self.threads
    }

    /// Returns the distance of a thread's slots, in lines if they are along the inner dimension, else in `k`.
    fn distance(&self) -> usize {
        if self.is_along_depth() { self.threads / QUADS } else { self.threads / self.vectors }
    }

    /// Whether the two halves of a thread's block lie four vectors apart, so that `^ 4` swaps them.
    fn swaps_halves(&self) -> bool {
        self.name == 'a' && self.halves == 2
    }

    /// Returns the name of the vector that a thread reads of `k` and of a half of its block.
    fn read_place(&self, k: usize, half: usize) -> String {
        match self.is_along_depth() {
            true if self.swaps_halves() => format!("{}_vector0_{}", self.name, half ^ (k / 4)),
            true => format!("{}_vector{}_{half}", self.name, k / 4),
            false => format!("{}_vector0_{half}", self.name),
        }
    }

    /// Declares the thread's places in the tile to write and to read, and those in memory.
    fn places(&self) -> String {
        let name = self.name;
        let (first, size, thread, apart) = match name {
            'a' => ("first_row", "parameters.m", "thread_m", 4),
            _ => ("first_column", "parameters.n", "thread_n", 8),
        };
        let mut text = String::new();
        for swap in 0..if self.is_along_depth() && !self.swaps_halves() { QUADS } else { 1 } {
            for half in 0..self.halves {
                let place = format!("({thread} + {}u) ^ {}u", half * apart, swap * 4);
                let _ = writeln!(text, "    let {name}_vector{swap}_{half} = {place};");
            }
        }
        let vectors = self.vectors;
        let placed = |line: &str| format!("{name}_place(batch, {line}, {name}_k)");
        match self.access {
            Access::Dense { order: Order::Depth, vectors } => {
                let _ = writeln!(text, "    let {name}_k = thread % {QUADS}u * 4u;");
                let _ = writeln!(text, "    let {name}_line = thread / {QUADS}u;");
                // The distance of slots is a multiple of 32 lines, which `^ 4` leaves alone.
                let _ = writeln!(text, "    let {name}_kept = ({name}_line / 4u) ^ {name}_k;");
                for slot in 0..self.slots() {
                    let line = format!("{first} + {name}_line + {}u", slot * self.distance());
                    let place = placed(&format!("min({line}, {size} - 1u)"));
                    let place = if vectors { format!("{place} / 4u") } else { place };
                    let _ = writeln!(text, "    let {name}_place{slot} = {place};");
                }
                return text;
            }
            Access::Dense { order: Order::Side, vectors: true } => {
                let line = format!("min({first} / 4u + {name}_kept, {size} / 4u - 1u) * 4u");
                let _ = writeln!(text, "    let {name}_k = thread / {vectors}u;");
                let _ = writeln!(text, "    let {name}_kept = thread % {vectors}u;");
                let _ = writeln!(text, "    let {name}_place = {} / 4u;", placed(&line));
            }
            Access::Dense { order: Order::Side, vectors: false } | Access::Windows => {
                let _ = writeln!(text, "    let {name}_k = thread / {vectors}u;");
                let _ = writeln!(text, "    let {name}_kept = thread % {vectors}u;");
                for lane in 0..4 {
                    let line = format!("min({first} + {name}_kept * 4u + {lane}u, {size} - 1u)");
                    let place = match self.access {
                        Access::Windows => format!("column_of(batch, {line})"),
                        Access::Dense { .. } => placed(&line),
                    };
                    let _ = writeln!(text, "    let {name}_place_{lane} = {place};");
                }
            }
        }
        text
    }

    /// Declares the registers, and reads the elements of the first step.
    fn fetch_first(&self) -> String {
        let name = self.name;
        let tap =
            |slot| format!("    var tap{slot} = {name}_taps[first_k + {name}_k + {}u];\n", slot * self.distance());
        let slots = if self.access == Access::Windows { self.slots() } else { 0 };
        let taps: String = (0..slots).map(tap).collect();
        taps + &self.fetch("    var next_", "first_k")
    }

    /// Reads the elements of the step that begins at `k` into registers.
    fn fetch(&self, register: &str, k: &str) -> String {
        let name = self.name;
        let mut text = String::new();
        let lanes =
            |read: &dyn Fn(usize) -> String| format!("vec4<f32>({})", (0..4).map(read).collect::<Vec<_>>().join(", "));
        for slot in 0..self.slots() {
            let skip = slot * self.distance();
            let value = match self.access {
                Access::Dense { order: Order::Depth, vectors: true } => {
                    format!("{name}_at({name}_place{slot} + {k} / 4u)")
                }
                Access::Dense { order: Order::Depth, vectors: false } => {
                    lanes(&|lane| format!("{name}_at({name}_place{slot} + {k} + {lane}u)"))
                }
                Access::Dense { order: Order::Side, vectors: true } => {
                    format!("{name}_at({name}_place + ({k} + {skip}u) * (parameters.{name}_depth / 4u))")
                }
                Access::Dense { order: Order::Side, vectors: false } => {
                    lanes(&|lane| format!("{name}_at({name}_place_{lane} + ({k} + {skip}u) * parameters.{name}_depth)"))
                }
                Access::Windows => lanes(&|lane| format!("{name}_at({name}_place_{lane}, tap{slot})")),
            };
            let _ = writeln!(text, "{register}{name}{slot} = {value};");
        }
        text
    }

    /// Replaces the elements of windows that are in the padding, and reads the taps of the step after the one at `k`.
    fn keep_windows(&self, k: &str) -> String {
        let name = self.name;
        let lane = |slot: usize, lane: usize, component: &str| {
            format!("{name}_masked({name}_place_{lane}, tap{slot}, next_{name}{slot}.{component})")
        };
        let slot = |slot: usize| {
            let lanes = ["x", "y", "z", "w"].iter().enumerate().map(|(at, component)| lane(slot, at, component));
            let tap = format!("min({k} + TILE_K, last) + {name}_k + {}u", slot * self.distance());
            format!(
                "        next_{name}{slot} = vec4<f32>({});\n        tap{slot} = {name}_taps[{tap}];\n",
                lanes.collect::<Vec<_>>().join(", ")
            )
        };
        (0..if self.access == Access::Windows { self.slots() } else { 0 }).map(slot).collect()
    }

    /// Replaces the elements of the step at `k` that are beyond the end of the part.
    fn mask(&self, k: &str) -> String {
        let name = self.name;
        let mask = |slot| {
            let inside = match self.is_along_depth() {
                true => format!("vec4<u32>({k} + {name}_k) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(end)"),
                false => format!("vec4<bool>({k} + {name}_k + {}u < end)", slot * self.distance()),
            };
            let register = format!("next_{name}{slot}");
            format!("            {register} = select(vec4<f32>(), {register}, {inside});\n")
        };
        (0..self.slots()).map(mask).collect()
    }

    /// Stores the registers to a buffer of workgroup memory.
    fn keep(&self, indent: &str, buffer: &str) -> String {
        let name = self.name;
        let mut text = String::new();
        for slot in 0..self.slots() {
            if !self.is_along_depth() {
                let place = format!("[{name}_k + {}u][{name}_kept]", slot * self.distance());
                let _ = writeln!(text, "{indent}{name}_tile[{buffer}]{place} = next_{name}{slot};");
                continue;
            }
            for lane in 0..4 {
                let vector = format!("{name}_kept + {}u", slot * self.distance() / 4);
                let place = format!("[{name}_k + {lane}u][{vector}][{name}_line % 4u]");
                let _ = writeln!(text, "{indent}{name}_tile[{buffer}]{place} = next_{name}{slot}[{lane}];");
            }
        }
        text
    }
}

const STORE_VECTOR: &str = "        if row < parameters.m && column < parameters.n {
            store(stored_batch, row, column, values);
        }";

const STORE_ELEMENTS: &str = "        for (var lane = 0u; lane < 4u; lane = lane + 1u) {
            if row < parameters.m && column + lane < parameters.n {
                store(stored_batch, row, column + lane, values[lane]);
            }
        }";

const _: () = assert!(LARGE[0].threads() == THREADS as usize);
const _: () = assert!(LARGE[0].workgroup_bytes() <= WORKGROUP_BYTES as usize);

/// Tiles for small products of tests, which would not be chosen for them.
#[cfg(test)]
pub(crate) mod forced {
    use super::{LARGE, SMALL, Tile};
    use std::cell::Cell;

    thread_local! {
        static TILE: Cell<Option<Tile>> = const { Cell::new(None) };
    }

    /// Returns the tile that this thread must take.
    pub(crate) fn tile() -> Option<Tile> {
        TILE.get()
    }

    /// Runs a test with each tile; this thread takes no other. The test gets the tile's rows and columns.
    pub(crate) fn each(test: impl Fn([usize; 2])) {
        for tile in LARGE.into_iter().chain([SMALL]) {
            TILE.set(Some(tile));
            test(tile.sides);
        }
        TILE.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_tile_that_makes_enough_groups_is_taken() {
        let tile = |[m, n, k]: [usize; 3]| {
            let whole = Extent { first: 0, batches: 1, m, n };
            let tile = Tile::new(whole, k);
            (tile.sides, tile.parts(whole, k).summation())
        };
        for (sizes, sides, parts) in [
            ([4096, 4096, 4096], [128, 128], [1, 4096]),
            ([1024, 1024, 1024], [128, 128], [4, 256]),
            ([768, 768, 768], [128, 64], [3, 256]),
            ([128, 768, 768], [64, 64], [10, 80]),
            ([900, 850, 20], [64, 64], [1, 20]),
            ([32, 4096, 4096], [32, 32], [2, 2048]),
            ([5, 7, 3], [32, 32], [1, 3]),
        ] {
            assert_eq!(tile(sizes), (sides, parts), "{sizes:?}");
        }
    }
}
