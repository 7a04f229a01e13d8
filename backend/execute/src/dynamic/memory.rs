//! Valid copies of each value in each memory, remaining readers, and the host's buffers.
//!
//! A memory is named by a device: [`HOST`] for the host's memory, which all CPU devices share, and each GPU for its own
//! memory.

use crate::memory_accounting::MemoryAccounting;
use anabranch_base::error_kind::ErrorKind;
use anabranch_ir::program::{NodeId, Program, ValueId};
use anabranch_kernels::Buffer;
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::{ExecError, HOST};
use std::collections::BTreeMap;
use std::sync::Arc;

/// State of a value in a memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Copy {
    #[default]
    Invalid,
    /// A transfer is in flight.
    Coming,
    Valid,
}

/// Copies of all values in one run.
pub(super) struct Copies {
    /// States by value, then by device.
    states: Vec<Vec<Copy>>,
    host: Vec<Option<Arc<Buffer>>>,
    readers: Vec<usize>,
}

impl Copies {
    /// Starts without copies. Each node and output that reads a value counts as one of its readers.
    pub(super) fn new(wiring: &Wiring, devices: usize) -> Self {
        let readers = wiring.readers.iter().zip(&wiring.outputs).map(|(nodes, outputs)| nodes.len() + outputs.len());
        let values = wiring.readers.len();
        let states = vec![vec![Copy::Invalid; devices]; values];
        Self { states, host: vec![None; values], readers: readers.collect() }
    }

    pub(super) fn state(&self, value: ValueId, memory: DeviceId) -> Copy {
        self.states[value.index()][memory.index()]
    }

    pub(super) fn set(&mut self, value: ValueId, memory: DeviceId, state: Copy) {
        self.states[value.index()][memory.index()] = state;
    }

    /// Returns the memory from which a value is copied: the host's if possible.
    pub(super) fn holder(&self, value: ValueId) -> Option<DeviceId> {
        let at = self.states[value.index()].iter().position(|state| *state == Copy::Valid);
        at.map(|at| DeviceId(at as u32))
    }

    /// Puts a value into the host's memory.
    pub(super) fn hold(&mut self, value: ValueId, buffer: Arc<Buffer>) {
        self.set(value, HOST, Copy::Valid);
        self.host[value.index()] = Some(buffer);
    }

    /// Returns the host's copy.
    pub(super) fn held(&self, value: ValueId) -> Option<&Arc<Buffer>> {
        self.host[value.index()].as_ref()
    }

    /// Counts one reader as done. After the last reader, returns the host's buffer, which is free.
    pub(super) fn read(&mut self, value: ValueId) -> Option<Arc<Buffer>> {
        let left = &mut self.readers[value.index()];
        *left = left.saturating_sub(1);
        self.drop_unread(value)
    }

    /// Takes the host's copy of a value without remaining readers.
    pub(super) fn drop_unread(&mut self, value: ValueId) -> Option<Arc<Buffer>> {
        if self.readers[value.index()] > 0 {
            return None;
        }
        let buffer = self.host[value.index()].take()?;
        self.set(value, HOST, Copy::Invalid);
        Some(buffer)
    }
}

/// Reusable buffers of the host, by size.
pub(super) struct Buffers {
    free: BTreeMap<usize, Vec<Buffer>>,
    accounting: Arc<MemoryAccounting>,
    /// Bytes that can still be taken, and the limit.
    left: u64,
    limit: u64,
}

impl Buffers {
    /// Creates a set of buffers with at most `left` of the host's `limit` bytes.
    pub(super) fn new(accounting: Arc<MemoryAccounting>, left: u64, limit: u64) -> Self {
        Self { free: BTreeMap::new(), accounting, left, limit }
    }

    /// Returns a buffer of exactly this many bytes, of undefined content.
    pub(super) fn take(&mut self, bytes: usize, host: &str) -> Result<Buffer, ExecError> {
        if let Some(buffer) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            return Ok(buffer);
        }
        self.reserve(bytes as u64, host)?;
        let buffer = Buffer::try_zeroed(bytes).ok_or_else(|| self.exhausted(bytes as u64, host))?;
        self.accounting.take(HOST, bytes);
        Ok(buffer)
    }

    /// Reduces the bytes that can still be taken.
    pub(super) fn reserve(&mut self, bytes: u64, host: &str) -> Result<(), ExecError> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| self.exhausted(bytes, host))?;
        Ok(())
    }

    fn exhausted(&self, bytes: u64, host: &str) -> ExecError {
        let text = format!(
            "{bytes} more bytes are needed on {host:?}, but of {} bytes only {} are left; raise its memory \
             limit, or make a plan, which knows its memory before the run",
            self.limit, self.left
        );
        ExecError::new(ErrorKind::Memory, text)
    }

    /// Takes a buffer back, unless another owner still holds it, who then keeps it.
    pub(super) fn give(&mut self, buffer: Arc<Buffer>) {
        let bytes = buffer.len();
        match Arc::try_unwrap(buffer) {
            Ok(buffer) => self.free.entry(bytes).or_default().push(buffer),
            Err(_) => {
                self.left += bytes as u64;
                self.accounting.give(HOST, bytes);
            }
        }
    }
}

/// Inputs of each node and readers of each value, which are equal in every run.
pub(super) struct Wiring {
    /// Inputs of each node that are not constants, without repeats.
    pub(super) reads: Vec<Vec<ValueId>>,
    /// Nodes that read each value.
    pub(super) readers: Vec<Vec<NodeId>>,
    /// Outputs that each value is.
    pub(super) outputs: Vec<Vec<u32>>,
}

impl Wiring {
    pub(super) fn of(program: &Program) -> Self {
        let reads = |node: &anabranch_ir::program::Node| {
            let mut values: Vec<_> = node.inputs.iter().copied().filter(|v| program.constant(*v).is_none()).collect();
            values.sort_unstable();
            values.dedup();
            values
        };
        let mut outputs = vec![Vec::new(); program.values.len()];
        for (index, output) in program.outputs.iter().enumerate() {
            outputs[output.value.index()].push(index as u32);
        }
        Self { reads: program.nodes.iter().map(reads).collect(), readers: program.consumers(), outputs }
    }
}
