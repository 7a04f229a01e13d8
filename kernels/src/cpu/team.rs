//! A team of threads that work on one kernel at a time.

/// Threads that run the parts of one kernel. The thread that calls is a member.
pub struct Team {
    threads: usize,
}

impl Team {
    /// A team of the calling thread alone.
    pub fn solo() -> Self {
        Self { threads: 1 }
    }

    /// The number of threads, the calling one included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `body(0)`, …, `body(parts - 1)`, each once, in any order and on any thread, and returns when all are done.
    pub fn run(&self, parts: usize, body: &(dyn Fn(usize) + Sync)) {
        (0..parts).for_each(body);
    }

    /// Cuts `data` into pieces of `length` elements (the last may be shorter) and runs `body(index, piece)` for each.
    pub fn run_pieces<T: Send>(&self, data: &mut [T], length: usize, body: &(dyn Fn(usize, &mut [T]) + Sync)) {
        data.chunks_mut(length.max(1)).enumerate().for_each(|(index, piece)| body(index, piece));
    }
}
