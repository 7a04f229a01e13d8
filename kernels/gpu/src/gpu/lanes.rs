//! Workgroups of several rows; several threads ("lanes") reduce each row in a fixed tree.

use super::Shader;
use super::limits::THREADS;

/// Division of a workgroup's threads between rows and lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lanes {
    /// Threads of a workgroup; a power of two.
    threads: usize,
    /// Threads of one row; a power of two.
    lanes: usize,
    /// Whether neighbouring threads work on neighbouring rows, instead of on neighbouring elements of one row.
    across: bool,
}

impl Lanes {
    /// Creates lanes with about eight elements of a row of `length` for each thread. Neighbouring threads read
    /// neighbouring memory: `across` rows if the elements of one row are apart.
    pub(crate) fn new(length: usize, across: bool) -> Self {
        let threads = THREADS as usize;
        // Rows that lie side by side are read in runs of 32 rows, if each row is long enough for that.
        let most = if across { threads / 32 } else { threads };
        Self { threads, lanes: length.div_ceil(8).next_power_of_two().clamp(1, most), across }
    }

    /// Creates workgroups of `threads` threads with `lanes` threads for each row. Neighbouring threads work on
    /// neighbouring elements. Both are powers of two.
    pub(crate) fn of(threads: usize, lanes: usize) -> Self {
        Self { threads, lanes, across: false }
    }

    /// Returns the threads of one row.
    pub(crate) fn width(&self) -> usize {
        self.lanes
    }

    fn rows(&self) -> usize {
        self.threads / self.lanes
    }

    /// Returns the passes of a lane through the elements of a row of `length`, and through the tree.
    pub(crate) fn passes(&self, length: usize) -> usize {
        length.div_ceil(self.lanes) + self.lanes.ilog2() as usize
    }

    pub(crate) fn groups(&self, rows: usize) -> usize {
        rows.div_ceil(self.rows())
    }

    /// Declares `LANES`, `ROWS` and `place(thread)`, a thread's row within its group and its lane.
    pub(crate) fn declare(&self, shader: &mut Shader<'_>) {
        shader.constant("LANES", self.lanes).constant("ROWS", self.rows());
        shader.code(match self.across {
            true => "fn place(thread: u32) -> vec2<u32> { return vec2<u32>(thread % ROWS, thread / ROWS); }\n",
            false => "fn place(thread: u32) -> vec2<u32> { return vec2<u32>(thread / LANES, thread % LANES); }\n",
        });
    }
}

/// Returns a WGSL function `name(value, at) -> state` that all threads of the group must call. It combines the values
/// of a row in a tree and returns the result to every lane. `combine` is a function of two states.
pub(crate) fn tree(name: &str, state: &str, combine: &str) -> String {
    include_str!("tree.wgsl").replace("NAME", name).replace("STATE", state).replace("COMBINE", combine)
}
