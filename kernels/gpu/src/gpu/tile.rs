//! Tiled matrix products: the body that matrix products and convolutions share, unrolled for a tile's sizes.

use super::Shader;
use super::limits::THREADS;
use super::product::{Extent, Parts};
use std::fmt::Write;

/// Sizes of a tile; see `tile.wgsl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Rows and columns of outputs of one workgroup.
    side: usize,
    /// Elements of the inner dimension in one step.
    depth: usize,
    /// Rows and columns of outputs of one thread: 4 or 8.
    block: usize,
}

/// Tile of large products: 16 multiply-adds for each vector read from workgroup memory.
const LARGE: Tile = Tile { side: 128, depth: 8, block: 8 };
const MEDIUM: Tile = Tile { side: 64, depth: 16, block: 4 };
/// Tile of small products, which must still make several workgroups.
const SMALL: Tile = Tile { side: 32, depth: 16, block: 4 };

/// Number of workgroups below which a smaller tile occupies a large device better.
const ENOUGH_GROUPS: usize = 160;
/// Minimum elements of the inner dimension for which a part is worth writing and reading its sums.
const LEAST_DEPTH: usize = 64;
/// Number of workgroups that the parts of the inner dimension should make together.
const PARTS_GROUPS: usize = 264;

/// Index of an operand that runs through neighbouring memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Inner dimension: neighbouring threads fetch neighbouring `k`.
    Depth,
    /// Rows of A or columns of B.
    Side,
}

impl Tile {
    /// Returns the tile for a product of these sizes: the largest that makes enough workgroups; small tiles may use
    /// parts for this.
    pub(crate) fn new(whole: Extent, k: usize) -> Self {
        let parts = |tile: &Self| if *tile == LARGE { 1 } else { (k / LEAST_DEPTH).max(1) };
        let groups = |tile: &Self| tile.groups(whole).saturating_mul(parts(tile));
        let fits = |tile: &Self| whole.m.min(whole.n) * 2 > tile.side && groups(tile) >= ENOUGH_GROUPS;
        [LARGE, MEDIUM].into_iter().find(fits).unwrap_or(SMALL)
    }

    /// Returns the workgroups of one part.
    fn groups(&self, Extent { batches, m, n, .. }: Extent) -> usize {
        batches.saturating_mul(m.div_ceil(self.side)).saturating_mul(n.div_ceil(self.side))
    }

    /// Returns the parts of an inner dimension of `k`.
    pub(crate) fn parts(&self, whole: Extent, k: usize) -> Parts {
        Parts::new(k, LEAST_DEPTH, self.groups(whole), PARTS_GROUPS)
    }

    /// Declares the tile's numbers and its body for an inner dimension of `k`. Returns the workgroups of a part.
    pub(crate) fn declare(&self, shader: &mut Shader<'_>, extent: Extent, k: usize, a: Order, b: Order) -> usize {
        shader
            .parameter("k", k)
            .parameter("tiles_m", extent.m.div_ceil(self.side))
            .parameter("tiles_n", extent.n.div_ceil(self.side));
        let shared = (2 * self.depth * self.stride()).max(self.threads() * self.block / 4);
        for (name, value) in [
            ("TILE_M", self.side),
            ("TILE_N", self.side),
            ("TILE_K", self.depth),
            ("THREAD_M", self.block),
            ("THREAD_N", self.block),
            ("THREADS", self.threads()),
            ("A_STRIDE", self.stride()),
            ("B_STRIDE", self.stride()),
            ("B_START", self.depth * self.stride()),
            ("SHARED_VECTORS", shared),
            ("UNROLL", UNROLL),
        ] {
            shader.constant(name, value);
        }
        shader.code(include_str!("tile.wgsl"));
        shader.fill("places", &self.places(a, b));
        shader.fill("accumulators", &self.accumulators());
        shader.fill("fetch_first", &self.fetch("    ", "    var next_", "first_k"));
        shader.fill("fetch_next", &self.fetch("            ", "            next_", "(k0 + TILE_K)"));
        shader.fill("keep", &self.keep());
        shader.fill("multiply", &self.multiply());
        shader.fill("stage", &self.stage());
        self.groups(extent)
    }

    /// Returns the passes of a thread through the loops over `k` elements of the inner dimension and over its outputs.
    pub(crate) fn passes(&self, k: usize) -> usize {
        k.div_ceil(self.depth) * (1 + self.depth / UNROLL) + self.block * (1 + self.block)
    }

    /// Returns the rows and columns of outputs of one workgroup.
    #[cfg(test)]
    pub(crate) fn side(&self) -> usize {
        self.side
    }

    fn threads(&self) -> usize {
        (self.side / self.block).pow(2)
    }

    /// Returns the vectors from one row of an operand's tile to the next.
    fn stride(&self) -> usize {
        self.side / 4 + 1
    }

    /// Returns the vectors of each operand that a thread fetches in one step.
    fn slots(&self) -> usize {
        self.side / 4 * self.depth / self.threads()
    }

    /// Declares the position of each of a thread's slots in the tile (`k` and vector), and the kernel's data for its
    /// four lines.
    fn places(&self, a: Order, b: Order) -> String {
        let mut text = String::new();
        let vectors = self.side / 4;
        for slot in 0..self.slots() {
            for (operand, order) in [("a", a), ("b", b)] {
                let id = format!("(thread + {}u)", slot * self.threads());
                let (k, vector) = match order {
                    Order::Depth => (format!("{id} % TILE_K"), format!("{id} / TILE_K")),
                    Order::Side => (format!("{id} / {vectors}u"), format!("{id} % {vectors}u")),
                };
                let _ = writeln!(text, "    let {operand}_k{slot} = {k};");
                let _ = writeln!(text, "    let {operand}_vector{slot} = {vector};");
                let (first, line_of) = match operand {
                    "a" => ("first_row", "line_of"),
                    _ => ("first_column", "column_of"),
                };
                for lane in 0..4 {
                    let place = format!("{first} + {operand}_vector{slot} * 4u + {lane}u");
                    let _ = writeln!(text, "    let {operand}_line{slot}_{lane} = {line_of}(batch, {place});");
                }
            }
        }
        text
    }

    fn accumulators(&self) -> String {
        let names = (0..self.block).flat_map(|row| (0..self.block / 4).map(move |vector| (row, vector)));
        names.map(|(row, vector)| format!("    var sum{row}_{vector} = vec4<f32>();\n")).collect()
    }

    /// Reads the elements of the step that begins at `k` into registers.
    fn fetch(&self, indent: &str, register: &str, k: &str) -> String {
        let mut text = String::new();
        for slot in 0..self.slots() {
            let lanes = |read: &dyn Fn(usize) -> String| (0..4).map(read).collect::<Vec<_>>().join(", ");
            let a = lanes(&|lane| format!("a_at(a_line{slot}_{lane}, {k} + a_k{slot})"));
            let b = lanes(&|lane| format!("b_at(b_line{slot}_{lane}, tap{slot})"));
            let _ = writeln!(text, "{register}a{slot} = vec4<f32>({a});");
            // A step's tap has a different name in each scope.
            let tap = if k == "first_k" { format!("first_tap{slot}") } else { format!("tap{slot}") };
            let _ = writeln!(text, "{indent}let {tap} = tap_of({k} + b_k{slot});");
            let _ = writeln!(text, "{register}b{slot} = vec4<f32>({});", b.replace(&format!("tap{slot}"), &tap));
        }
        text
    }

    /// Stores the registers to workgroup memory.
    fn keep(&self) -> String {
        let mut text = String::new();
        for slot in 0..self.slots() {
            let _ = writeln!(text, "        shared_tile[a_k{slot} * A_STRIDE + a_vector{slot}] = next_a{slot};");
            let place = format!("B_START + b_k{slot} * B_STRIDE + b_vector{slot}");
            let _ = writeln!(text, "        shared_tile[{place}] = next_b{slot};");
        }
        text
    }

    /// Returns the multiply-adds of [`UNROLL`] steps of the inner dimension.
    fn multiply(&self) -> String {
        let mut text = String::new();
        let halves = self.block / 4;
        for step in 0..UNROLL {
            for half in 0..halves {
                let skip = half * self.side / 8;
                let a = format!("(k + {step}u) * A_STRIDE + thread_m + {skip}u");
                let b = format!("B_START + (k + {step}u) * B_STRIDE + thread_n + {skip}u");
                let _ = writeln!(text, "            let a{step}_{half} = shared_tile[{a}];");
                let _ = writeln!(text, "            let b{step}_{half} = shared_tile[{b}];");
            }
            for row in 0..self.block {
                let component = ["x", "y", "z", "w"][row % 4];
                for vector in 0..halves {
                    let sum = format!("sum{row}_{vector}");
                    let a = format!("vec4<f32>(a{step}_{}.{component})", row / 4);
                    let _ = writeln!(text, "            {sum} = fma({a}, b{step}_{vector}, {sum});");
                }
            }
        }
        text
    }

    /// Returns the cases of a switch that store one row of each thread's block to workgroup memory.
    fn stage(&self) -> String {
        let mut text = String::new();
        for row in 0..self.block {
            let _ = write!(text, "            case {row}u: {{");
            for vector in 0..self.block / 4 {
                let skip = vector * self.side / 8;
                let place = format!("thread_m * (TILE_N / 4u) + thread_n + {skip}u");
                let _ = write!(text, " shared_tile[{place}] = sum{row}_{vector};");
            }
            text.push_str(" }\n");
        }
        text
    }
}

/// Steps of the inner dimension that are unrolled.
const UNROLL: usize = 4;

const _: () = assert!(LARGE.side / LARGE.block * (LARGE.side / LARGE.block) == THREADS as usize);
