//! Interpreter of compiled element-wise expressions ([`Code`]): one vectorised loop per instruction, over a block of
//! elements that stays in the L1 cache.

use super::code::{Action, Code, Destination, Operand};
use super::number::{Number, Undefined};
use super::source::{Source, choose};
use super::truth;

/// Values of an expression's inputs over the current block.
pub(crate) trait Inputs<T> {
    /// Returns an input that is read in place.
    fn direct(&self, input: usize) -> Source<'_, T>;

    /// Loads an input that is not read in place.
    fn load(&self, input: usize, out: &mut [T]);
}

/// Elements of a block's result.
pub(crate) enum Output<'a, T> {
    /// Numbers of the domain.
    Numbers(&'a mut [T]),
    /// Bytes that are 1 or 0: the last instruction is a test, whose numbers would be.
    Truths(&'a mut [u8]),
}

/// Elements of the memory that all registers of a block share.
const MEMORY_ELEMENTS: usize = 4096;
/// Smaller memories for calls on few elements, which would otherwise spend their time clearing memory.
const FEW_ELEMENTS: [usize; 2] = [256, 1024];
/// Maximum slots: with more, a block would be shorter than a vector.
pub(crate) const MOST_SLOTS: usize = MEMORY_ELEMENTS / 16 - 1;
/// Maximum elements of a block of 32 or 64 bits each: an L1 cache holds them for a few operands and the result.
const LONGEST_BLOCK: usize = 1024;

/// Registers of one block, aligned to a vector.
#[repr(align(64))]
struct Memory<T, const N: usize>([T; N]);

impl<T: Number> Code<T> {
    /// Runs `body(slots, spare, block)` with memory for slots of blocks of `block` elements, and for `spare` more
    /// blocks. `length` is the total number of elements to compute.
    #[inline]
    pub(crate) fn with_slots<R>(
        &self,
        spare: usize,
        length: usize,
        body: impl FnOnce(&mut [T], &mut [T], usize) -> R,
    ) -> R {
        let zero = T::zeroed();
        let length = length.max(1);
        let blocks = self.slots + spare;
        if blocks == 0 {
            return body(&mut [], &mut [], length);
        }
        let with = |memory: &mut [T], block: usize| {
            let (slots, spare) = memory[..blocks * block].split_at_mut(self.slots * block);
            body(slots, spare, block)
        };
        if blocks * length <= FEW_ELEMENTS[0] {
            return with(&mut Memory([zero; FEW_ELEMENTS[0]]).0, length);
        }
        if blocks * length <= FEW_ELEMENTS[1] {
            return with(&mut Memory([zero; FEW_ELEMENTS[1]]).0, length);
        }
        let longest = LONGEST_BLOCK * (4 / size_of::<T>()).max(1);
        let block = (MEMORY_ELEMENTS / blocks).min(longest) & !15;
        with(&mut Memory([zero; MEMORY_ELEMENTS]).0, block)
    }

    /// Whether the last instruction is a test.
    pub(crate) fn is_test(&self) -> bool {
        match self.instructions.last().map(|instruction| instruction.action) {
            Some(Action::Unary(function, _)) => function.is_test(),
            Some(Action::Binary(function, ..)) => function.is_test(),
            _ => false,
        }
    }

    /// Computes a block's result into `output`, which has at most as many elements as the block of
    /// [`Self::with_slots`]; that function provides `slots` too.
    #[inline]
    pub(crate) fn run(&self, inputs: &impl Inputs<T>, slots: &mut [T], output: Output<'_, T>) -> Result<(), Undefined> {
        let (output, truths) = match output {
            Output::Numbers(numbers) => (numbers, &mut [][..]),
            Output::Truths(truths) => (&mut [][..], truths),
        };
        let length = output.len().max(truths.len());
        let block = slots.len() / self.slots.max(1);
        for instruction in &self.instructions {
            let (below, target, above) = match instruction.target {
                Destination::Output => (&*slots, &mut *output, &[][..]),
                Destination::Slot(slot) => {
                    let (below, rest) = slots.split_at_mut(usize::from(slot) * block);
                    let (target, above) = rest.split_at_mut(block);
                    (&*below, &mut target[..length], &*above)
                }
            };
            let source = |operand: Operand<T>| match operand {
                Operand::Constant(value) => Source::Scalar(value),
                Operand::Input(input) => inputs.direct(usize::from(input)),
                Operand::Slot(slot) => {
                    let start = usize::from(slot) * block;
                    let values = match start.checked_sub(below.len()) {
                        None => &below[start..],
                        // The slot of the target lies between them, and no operand uses it.
                        Some(beyond) => &above[beyond - block..],
                    };
                    Source::Slice(&values[..length])
                }
            };
            match instruction.action {
                Action::Load(input) => inputs.load(usize::from(input), target),
                Action::Fill(value) => target.fill(value),
                Action::Unary(function, a) if target.len() < length => truth::unary(function, source(a), truths),
                Action::Binary(function, a, b) if target.len() < length => {
                    truth::binary(function, source(a), source(b), truths);
                }
                Action::Unary(function, a) => T::unary(function, source(a), target)?,
                Action::Binary(function, a, b) => T::binary(function, source(a), source(b), target)?,
                Action::Chain(ref chain, a, b) => T::chain(chain, source(a), source(b), target),
                Action::Select(a, b, c) => T::select(source(a), source(b), source(c), target),
                Action::Choose(comparison, a, b, c) => choose(comparison, source(a), source(b), source(c), target),
            }
        }
        Ok(())
    }
}
