//! Expressions compiled for the interpreter: registers become slots of a small block of memory, constants operands.
//!
//! A slot holds one register's values for a block of elements. A slot is free again as soon as its register has been
//! read for the last time. A long expression thus needs few slots, and its whole working set stays in the L1 cache.

use super::chain::Chain;
use super::interpret::MOST_SLOTS;
use super::number::Number;
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Binary, Expression, Register, Step, Unary};

/// Source of an instruction's operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand<T> {
    /// Input that is read in place.
    Input(u16),
    Slot(u16),
    Constant(T),
}

/// Destination of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Destination {
    /// Slot that no operand of the instruction uses.
    Slot(u16),
    /// Result of the expression.
    Output,
}

/// Function that an instruction computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action<T> {
    /// Copies, converts or gathers an input.
    Load(u16),
    /// Writes a constant.
    Fill(T),
    Unary(Unary, Operand<T>),
    Binary(Binary, Operand<T>, Operand<T>),
    /// The second operand if the first is not 0, else the third.
    Select(Operand<T>, Operand<T>, Operand<T>),
    /// The second operand if the comparison of the first holds, else the third.
    Choose(Comparison<T>, Operand<T>, Operand<T>, Operand<T>),
    /// Several steps in one pass; the second operand has no meaning if nothing is joined.
    Chain(Chain, Operand<T>, Operand<T>),
}

/// Comparison of a number with a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Comparison<T> {
    pub(crate) function: Binary,
    pub(crate) with: T,
}

/// One loop over a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Instruction<T> {
    pub(crate) action: Action<T>,
    pub(crate) target: Destination,
}

/// Expression that is ready for interpretation.
#[derive(Clone, Debug)]
pub(crate) struct Code<T> {
    /// Instructions in order; the last one, and no other, writes [`Destination::Output`].
    pub(crate) instructions: Vec<Instruction<T>>,
    pub(crate) slots: usize,
}

impl<T: Number> Code<T> {
    /// Compiles the part of an expression up to a register, like [`new`](Self::new). O(registers).
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub(crate) fn up_to(register: Register, expression: &Expression, direct: &[bool]) -> Result<Self, KernelError> {
        match usize::from(register.0).checked_sub(expression.inputs()) {
            None => {
                let load = Instruction { action: Action::Load(register.0), target: Destination::Output };
                Ok(Self { instructions: vec![load], slots: 0 })
            }
            Some(last) => {
                let steps = expression.steps()[..=last].to_vec();
                Self::new(&Expression::new(expression.inputs(), steps).expect("a beginning is sound"), direct)
            }
        }
    }

    /// Compiles an expression whose input `i` can be read in place if `direct[i]`, and must be loaded into a slot
    /// otherwise. O(registers).
    ///
    /// # Errors
    /// If the expression needs more than [`MOST_SLOTS`] slots.
    pub(crate) fn new(expression: &Expression, direct: &[bool]) -> Result<Self, KernelError> {
        let code = Compiler::new(expression, direct).compile(expression);
        if code.slots <= MOST_SLOTS {
            return Ok(code);
        }
        let reason = format!("its expression holds {} values at once; at most {MOST_SLOTS} are supported", code.slots);
        Err(KernelError::Unsupported { op: "map", reason })
    }
}

/// State of a register while the steps are visited in order.
#[derive(Clone, Copy)]
struct Value<T> {
    state: State<T>,
    /// Number of uses that are still to come.
    uses: u32,
}

#[derive(Clone, Copy)]
enum State<T> {
    /// An input that has not been loaded yet, or a step that has not been visited yet.
    Unread,
    Ready(Operand<T>),
    /// A step that is computed when it is needed, unless the step that needs it can be joined to the chain.
    Pending(Pending<T>),
    /// A comparison of a register that is ready and kept, computed when it is needed, unless a selection takes it.
    Compared(Comparison<T>, Register),
}

/// Chain over operands that are ready, and that are kept until it is emitted.
#[derive(Clone, Copy)]
struct Pending<T> {
    chain: Chain,
    /// Instruction to emit instead as long as the chain is one step.
    single: Option<Action<T>>,
    first: Register,
    second: Option<Register>,
}

struct Compiler<T> {
    values: Vec<Value<T>>,
    free: Vec<u16>,
    code: Code<T>,
}

impl<T: Number> Compiler<T> {
    fn new(expression: &Expression, direct: &[bool]) -> Self {
        let mut values = vec![Value { state: State::Unread, uses: 0 }; expression.registers()];
        values[usize::from(expression.result().0)].uses = 1;
        // Backwards, so that a step that nothing uses does not count as a use.
        for (index, step) in expression.steps().iter().enumerate().rev() {
            if values[expression.inputs() + index].uses > 0 {
                step.operands().for_each(|r| values[usize::from(r.0)].uses += 1);
            }
        }
        for (input, _) in direct.iter().enumerate().take(expression.inputs()).filter(|(_, direct)| **direct) {
            values[input].state = State::Ready(Operand::Input(input as u16));
        }
        Self { values, free: Vec::new(), code: Code { instructions: Vec::new(), slots: 0 } }
    }

    fn compile(mut self, expression: &Expression) -> Code<T> {
        for (index, step) in expression.steps().iter().enumerate() {
            let register = Register((expression.inputs() + index) as u16);
            if self.value(register).uses > 0 {
                self.step(*step, register, register == expression.result());
            }
        }
        match self.value(expression.result()).state {
            State::Ready(Operand::Constant(value)) => self.emit(Action::Fill(value), Destination::Output),
            State::Pending(pending) => self.emit_chain(pending, Destination::Output),
            _ if expression.steps().is_empty() => self.emit(Action::Load(0), Destination::Output),
            _ => {}
        }
        self.code
    }

    /// Visits one step: stores its value if it is constant, joins it to a chain if it fits, else emits it.
    fn step(&mut self, step: Step, register: Register, is_result: bool) {
        if let Some(value) = self.folded(step) {
            self.set(register, State::Ready(Operand::Constant(value)));
            step.operands().for_each(|r| self.release(r));
        } else if let Some(pending) = self.chained(step).or_else(|| self.leaky(step)) {
            self.set(register, State::Pending(pending));
        } else if let Some((comparison, of)) = self.compared(step, register).filter(|_| !is_result) {
            self.operand(of);
            self.set(register, State::Compared(comparison, of));
        } else {
            let compared = match step {
                Step::Select(test, ..) => self.compared_by(test),
                _ => None,
            };
            let action = self.action(step);
            let place = if is_result { Destination::Output } else { Destination::Slot(self.slot()) };
            self.emit(action, place);
            if let Destination::Slot(slot) = place {
                self.set(register, State::Ready(Operand::Slot(slot)));
            }
            // Operands are released after the result's slot is taken, so that no instruction writes what it reads.
            step.operands().chain(compared).for_each(|r| self.release(r));
        }
    }

    /// Returns the register that a comparison keeps until it is computed.
    fn compared_by(&self, test: Register) -> Option<Register> {
        match self.value(test).state {
            State::Compared(_, of) => Some(of),
            _ => None,
        }
    }

    /// Returns the step as a comparison with a constant that one step uses, and the register that it compares.
    fn compared(&self, step: Step, register: Register) -> Option<(Comparison<T>, Register)> {
        if !matches!(T::DTYPE, DType::F32 | DType::F64) || self.value(register).uses != 1 {
            return None;
        }
        let Step::Binary(function, a, b) = step else { return None };
        let mirrored = match function {
            Binary::Less => Binary::Greater,
            Binary::LessOrEqual => Binary::GreaterOrEqual,
            Binary::Greater => Binary::Less,
            Binary::GreaterOrEqual => Binary::LessOrEqual,
            Binary::Equal => Binary::Equal,
            _ => return None,
        };
        match (self.value(a).state, self.value(b).state) {
            (_, State::Ready(Operand::Constant(with))) => Some((Comparison { function, with }, a)),
            (State::Ready(Operand::Constant(with)), _) => Some((Comparison { function: mirrored, with }, b)),
            _ => None,
        }
    }

    /// Returns the selection `x < 0 ? slope · x : x` as a chain.
    fn leaky(&mut self, step: Step) -> Option<Pending<T>> {
        let Step::Select(test, scaled, other) = step else { return None };
        let State::Compared(comparison, first) = self.value(test).state else { return None };
        let Value { state: State::Pending(product), uses: 1 } = self.value(scaled) else { return None };
        let is_negative = comparison.function == Binary::Less && comparison.with == T::zeroed();
        let slope = product.chain.only_factor()?;
        if !(is_negative && other == first && product.first == first && product.second.is_none()) {
            return None;
        }
        // The chain keeps one of the three uses of its operand.
        [test, scaled, first, first].into_iter().for_each(|r| self.release(r));
        Some(Pending { chain: Chain::leaky(slope), single: None, first, second: None })
    }

    /// Returns the step's value over constants, unless it is undefined.
    fn folded(&self, step: Step) -> Option<T> {
        let constant = |r: Register| match self.value(r).state {
            State::Ready(operand @ Operand::Constant(_)) => Some(operand),
            _ => None,
        };
        folded(match step {
            Step::Constant(literal) => Action::Fill(T::literal(literal)),
            Step::Unary(function, a) => Action::Unary(function, constant(a)?),
            Step::Binary(function, a, b) => Action::Binary(function, constant(a)?, constant(b)?),
            Step::Select(a, b, c) => Action::Select(constant(a)?, constant(b)?, constant(c)?),
        })
    }

    /// Returns the step joined to an operand's chain, or a new chain of the step alone, if it fits.
    fn chained(&mut self, step: Step) -> Option<Pending<T>> {
        if T::DTYPE != DType::F32 {
            return None;
        }
        let (candidates, count) = match step {
            Step::Unary(_, a) => ([a, a], 1),
            Step::Binary(_, a, b) => ([a, b], 2),
            _ => return None,
        };
        let candidates = &candidates[..count];
        let joined = candidates.iter().find_map(|of| match self.value(*of) {
            Value { state: State::Pending(pending), uses: 1 } => {
                let (chain, second) = self.extended(pending.chain, step, *of)?;
                Some(Pending { chain, single: None, second: pending.second.or(second), ..pending })
            }
            _ => None,
        });
        let alone = || {
            candidates.iter().find_map(|of| {
                let (chain, second) = self.extended(Chain::EMPTY, step, *of)?;
                Some(Pending { chain, single: None, first: *of, second })
            })
        };
        let is_joined = joined.is_some();
        let mut pending = joined.or_else(alone)?;
        // The chain's operands are computed now, as part of this step, and kept until the chain is emitted.
        if is_joined {
            pending.second.iter().for_each(|r| {
                self.operand(*r);
            });
        } else {
            pending.single = Some(self.action(step));
        }
        Some(pending)
    }

    /// Returns the chain extended by a step on register `of`, and the register that the step joins.
    fn extended(&self, chain: Chain, step: Step, of: Register) -> Option<(Chain, Option<Register>)> {
        let constant = |r: Register| match self.value(r).state {
            State::Ready(Operand::Constant(value)) => bytemuck::try_cast::<T, f32>(value).ok(),
            _ => None,
        };
        match step {
            Step::Unary(function, _) => Some((chain.then_unary(function)?, None)),
            Step::Binary(function, a, b) => match (constant(a), constant(b)) {
                (_, Some(value)) if a == of => Some((chain.then_constant(function, value)?, None)),
                (Some(value), _) if b == of => Some((chain.after_constant(function, value)?, None)),
                (None, None) => Some((chain.then_join(function)?, Some(if a == of { b } else { a }))),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the step as a separate instruction, with its operands ready.
    fn action(&mut self, step: Step) -> Action<T> {
        match step {
            Step::Constant(literal) => Action::Fill(T::literal(literal)),
            Step::Unary(function, a) => Action::Unary(function, self.operand(a)),
            Step::Binary(function, a, b) => Action::Binary(function, self.operand(a), self.operand(b)),
            Step::Select(test, b, c) => match self.value(test).state {
                State::Compared(comparison, of) => {
                    Action::Choose(comparison, self.operand(of), self.operand(b), self.operand(c))
                }
                _ => Action::Select(self.operand(test), self.operand(b), self.operand(c)),
            },
        }
    }

    /// Returns the register's operand, after computing it if it is not ready.
    fn operand(&mut self, register: Register) -> Operand<T> {
        match self.value(register).state {
            State::Ready(operand) => operand,
            State::Unread => {
                let slot = self.slot();
                self.emit(Action::Load(register.0), Destination::Slot(slot));
                self.set(register, State::Ready(Operand::Slot(slot)));
                Operand::Slot(slot)
            }
            State::Pending(pending) => {
                let slot = self.slot();
                self.emit_chain(pending, Destination::Slot(slot));
                self.set(register, State::Ready(Operand::Slot(slot)));
                Operand::Slot(slot)
            }
            State::Compared(Comparison { function, with }, of) => {
                let action = Action::Binary(function, self.operand(of), Operand::Constant(with));
                let slot = self.slot();
                self.emit(action, Destination::Slot(slot));
                self.set(register, State::Ready(Operand::Slot(slot)));
                self.release(of);
                Operand::Slot(slot)
            }
        }
    }

    fn emit_chain(&mut self, pending: Pending<T>, place: Destination) {
        let action = pending.single.unwrap_or_else(|| {
            let first = self.operand(pending.first);
            let second = pending.second.map_or(first, |r| self.operand(r));
            Action::Chain(pending.chain, first, second)
        });
        self.emit(action, place);
        self.release(pending.first);
        pending.second.iter().for_each(|r| self.release(*r));
    }

    fn release(&mut self, register: Register) {
        let value = &mut self.values[usize::from(register.0)];
        value.uses -= 1;
        if value.uses == 0
            && let State::Ready(Operand::Slot(slot)) = value.state
        {
            self.free.push(slot);
        }
    }

    fn slot(&mut self) -> u16 {
        self.free.pop().unwrap_or_else(|| {
            self.code.slots += 1;
            (self.code.slots - 1) as u16
        })
    }

    fn emit(&mut self, action: Action<T>, target: Destination) {
        self.code.instructions.push(Instruction { action, target });
    }

    fn value(&self, register: Register) -> Value<T> {
        self.values[usize::from(register.0)]
    }

    fn set(&mut self, register: Register, state: State<T>) {
        self.values[usize::from(register.0)].state = state;
    }
}

/// Returns the value of an action over constants, unless it is undefined (an integer division by zero).
fn folded<T: Number>(action: Action<T>) -> Option<T> {
    use super::source::Source::Scalar;
    use Operand::Constant;
    let mut value = [T::literal(anabranch_op::op::Literal::Int(0))];
    let defined = match action {
        Action::Fill(constant) => return Some(constant),
        Action::Unary(function, Constant(a)) => T::unary(function, Scalar(a), &mut value),
        Action::Binary(function, Constant(a), Constant(b)) => T::binary(function, Scalar(a), Scalar(b), &mut value),
        Action::Select(Constant(a), Constant(b), Constant(c)) => {
            T::select(Scalar(a), Scalar(b), Scalar(c), &mut value);
            Ok(())
        }
        _ => return None,
    };
    defined.is_ok().then_some(value[0])
}

#[cfg(test)]
mod tests {
    use super::super::chain::Middle;
    use super::*;
    use anabranch_op::op::Literal;

    fn register(index: u16) -> Register {
        Register(index)
    }

    #[test]
    fn a_long_chain_needs_two_slots() {
        let mut expression = Expression::unary(Unary::Sin);
        for _ in 0..50 {
            expression = expression.then(&Expression::unary(Unary::Cos), 0).expect("fits");
        }
        let code = Code::<f32>::new(&expression, &[true]).expect("few slots");
        assert_eq!((code.slots, code.instructions.len()), (2, 51));
    }

    #[test]
    fn no_instruction_writes_what_it_reads() {
        let steps = vec![
            Step::Binary(Binary::Add, register(0), register(1)),
            Step::Binary(Binary::Multiply, register(2), register(2)),
            Step::Select(register(3), register(2), register(0)),
            Step::Unary(Unary::Exp, register(4)),
        ];
        let code = Code::<f32>::new(&Expression::new(2, steps).expect("sound"), &[false, false]).expect("few slots");
        for Instruction { action, target } in &code.instructions {
            let read = match *action {
                Action::Load(_) | Action::Fill(_) => vec![],
                Action::Unary(_, a) => vec![a],
                Action::Binary(_, a, b) => vec![a, b],
                Action::Select(a, b, c) => vec![a, b, c],
                Action::Choose(_, a, b, c) => vec![a, b, c],
                Action::Chain(_, a, b) => vec![a, b],
            };
            let Destination::Slot(target) = *target else { continue };
            assert!(!read.contains(&Operand::Slot(target)), "{action:?} writes {target}");
        }
        assert_eq!(code.instructions.last().map(|i| i.target), Some(Destination::Output));
    }

    #[test]
    fn constants_are_folded_and_unused_steps_dropped() {
        let steps = vec![
            Step::Constant(Literal::Float(2.0)),
            Step::Unary(Unary::Sqrt, register(1)),
            Step::Unary(Unary::Exp, register(0)),
            Step::Binary(Binary::Multiply, register(0), register(2)),
        ];
        let code = Code::<f32>::new(&Expression::new(1, steps).expect("sound"), &[true]).expect("few slots");
        let action = Action::Binary(Binary::Multiply, Operand::Input(0), Operand::Constant(2f32.sqrt()));
        assert_eq!(code.instructions, [Instruction { action, target: Destination::Output }]);
    }

    #[test]
    fn steps_that_fit_are_joined_into_chains() {
        let half = Step::Constant(Literal::Float(0.5));
        // ((a + b) / 2) · tanh((a + b) / 2): the first chain is read twice, so it has a slot.
        let steps = vec![
            half,
            Step::Binary(Binary::Add, register(0), register(1)),
            Step::Binary(Binary::Multiply, register(3), register(2)),
            Step::Unary(Unary::Tanh, register(4)),
            Step::Binary(Binary::Multiply, register(4), register(5)),
        ];
        let code = Code::<f32>::new(&Expression::new(2, steps).expect("sound"), &[true, true]).expect("few slots");
        let places: Vec<_> = code.instructions.iter().map(|i| i.target).collect();
        assert_eq!(places, [Destination::Slot(0), Destination::Output]);
        assert!(code.instructions.iter().all(|i| matches!(i.action, Action::Chain(..))), "{code:?}");
        let steps =
            vec![half, Step::Binary(Binary::Divide, register(1), register(0)), Step::Unary(Unary::Relu, register(2))];
        let code = Code::<f64>::new(&Expression::new(1, steps).expect("sound"), &[true]).expect("few slots");
        assert_eq!(code.instructions.len(), 2);
    }

    #[test]
    fn a_selection_takes_the_comparison_that_it_alone_uses() {
        let constant = |value| Step::Constant(Literal::Float(value));
        let less = Step::Binary(Binary::Less, register(0), register(1));
        let times = |by| Step::Binary(Binary::Multiply, register(0), register(by));
        let code = |steps: Vec<Step>| {
            let code = Code::<f32>::new(&Expression::new(1, steps).expect("sound"), &[true]).expect("few slots");
            code.instructions.into_iter().map(|instruction| instruction.action).collect::<Vec<_>>()
        };
        let leaky =
            vec![constant(0.0), constant(0.1), less, times(2), Step::Select(register(3), register(4), register(0))];
        assert!(matches!(code(leaky)[..], [Action::Chain(chain, ..)] if chain.middle == Middle::Leaky(0.1)));
        // Another bound than 0 is no chain, and neither is another number than the one that is compared.
        let raised =
            vec![constant(1.0), constant(0.1), less, times(2), Step::Select(register(3), register(4), register(0))];
        assert!(matches!(code(raised)[..], [Action::Binary(..), Action::Choose(..)]));
        let other =
            vec![constant(0.0), constant(0.1), less, times(2), Step::Select(register(3), register(4), register(2))];
        assert!(matches!(code(other)[..], [Action::Binary(..), Action::Choose(..)]));
        let twice = vec![constant(0.0), less, Step::Select(register(2), register(0), register(2))];
        assert!(matches!(code(twice)[..], [Action::Binary(..), Action::Select(..)]));
        let mirrored = vec![
            constant(1.0),
            Step::Binary(Binary::Less, register(1), register(0)),
            Step::Select(register(2), register(0), register(1)),
        ];
        let comparison = Comparison { function: Binary::Greater, with: 1.0 };
        assert!(matches!(code(mirrored)[..], [Action::Choose(found, ..)] if found == comparison));
        let summed = vec![constant(0.0), less, Step::Binary(Binary::Add, register(2), register(0))];
        assert!(matches!(code(summed)[..], [Action::Binary(..), Action::Binary(..)]));
    }

    #[test]
    fn an_undefined_constant_is_left_to_run_time() {
        let zero = Step::Constant(Literal::Int(0));
        let steps = vec![zero, Step::Binary(Binary::Divide, register(0), register(0))];
        let code = Code::<i64>::new(&Expression::new(0, steps).expect("sound"), &[]).expect("few slots");
        assert_eq!(code.instructions.len(), 1);
    }
}
