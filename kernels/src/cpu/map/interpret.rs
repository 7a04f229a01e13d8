//! The interpreter: one vectorised loop an instruction, over a block of elements that stays in the innermost cache.

use super::code::{Action, Code, Operand, Place};
use super::number::{Number, Undefined};
use super::source::Source;

/// What an expression's inputs are over the block at hand.
pub(crate) trait Inputs<T> {
    /// An input that is read in place.
    fn direct(&self, input: usize) -> Source<'_, T>;

    /// Loads an input that is not.
    fn load(&self, input: usize, out: &mut [T]);
}

/// Elements of the memory that a block's registers take up together.
const MEMORY_ELEMENTS: usize = 4096;
/// The same for calls on few elements, which would otherwise spend their time clearing it.
const FEW_ELEMENTS: [usize; 2] = [256, 1024];
/// More slots than this cannot be interpreted: a block would be shorter than a vector.
pub(crate) const MOST_SLOTS: usize = MEMORY_ELEMENTS / 16 - 1;
/// Elements of a block, at most: what a few operands and the result leave in a first-level cache.
const LONGEST_BLOCK: usize = 1024;

/// The registers of one block, aligned to a vector.
#[repr(align(64))]
struct Memory<T, const N: usize>([T; N]);

impl<T: Number> Code<T> {
    /// Runs `body(slots, spare, block)` with memory for the slots of blocks of `block` elements, and for `spare` blocks
    /// beside them, where `length` elements are to be computed in all.
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
        let block = (MEMORY_ELEMENTS / blocks).min(LONGEST_BLOCK) & !15;
        with(&mut Memory([zero; MEMORY_ELEMENTS]).0, block)
    }

    /// Computes a block's result into `output`, at most as many elements as the block of [`Self::with_slots`] has; `slots`
    /// are from there too.
    #[inline]
    pub(crate) fn run(&self, inputs: &impl Inputs<T>, slots: &mut [T], output: &mut [T]) -> Result<(), Undefined> {
        let length = output.len();
        let block = slots.len() / self.slots.max(1);
        for instruction in &self.instructions {
            let (below, target, above) = match instruction.target {
                Place::Output => (&*slots, &mut *output, &[][..]),
                Place::Slot(slot) => {
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
                        // The target's own slot lies between, and is no operand.
                        Some(beyond) => &above[beyond - block..],
                    };
                    Source::Slice(&values[..length])
                }
            };
            match instruction.action {
                Action::Load(input) => inputs.load(usize::from(input), target),
                Action::Fill(value) => target.fill(value),
                Action::Unary(function, a) => T::unary(function, source(a), target)?,
                Action::Binary(function, a, b) => T::binary(function, source(a), source(b), target)?,
                Action::Chain(ref chain, a, b) => T::chain(chain, source(a), source(b), target),
                Action::Select(a, b, c) => T::select(source(a), source(b), source(c), target),
            }
        }
        Ok(())
    }
}
