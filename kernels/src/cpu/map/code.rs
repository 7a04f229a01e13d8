//! Expressions compiled for the interpreter: registers become slots of a small block of memory, constants operands.
//!
//! A slot is one register's values for a block of elements. Slots are reused as soon as their register has been read
//! for the last time, so that a long expression needs few and its whole working set stays in the innermost cache.

use super::interpret::MOST_SLOTS;
use super::number::Number;
use crate::error::KernelError;
use crate::op::{Binary, Expression, Register, Step, Unary};

/// Where an instruction reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand<T> {
    /// An input that is read where it lies.
    Input(u16),
    /// A slot.
    Slot(u16),
    /// A constant.
    Constant(T),
}

/// Where an instruction writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    /// A slot, which no operand of the instruction is.
    Slot(u16),
    /// The expression's result.
    Output,
}

/// What an instruction computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action<T> {
    /// Copies, converts or gathers an input.
    Load(u16),
    /// Writes a constant.
    Fill(T),
    /// A function of one operand.
    Unary(Unary, Operand<T>),
    /// A function of two operands.
    Binary(Binary, Operand<T>, Operand<T>),
    /// The second operand where the first is not 0, else the third.
    Select(Operand<T>, Operand<T>, Operand<T>),
}

/// One loop over a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Instruction<T> {
    /// What is computed.
    pub(crate) action: Action<T>,
    /// Where it goes.
    pub(crate) target: Place,
}

/// An expression, ready to be interpreted.
#[derive(Clone, Debug)]
pub(crate) struct Code<T> {
    /// The instructions, in order; the last one writes the result, and only that one writes [`Place::Output`].
    pub(crate) instructions: Vec<Instruction<T>>,
    /// The number of slots.
    pub(crate) slots: usize,
}

impl<T: Number> Code<T> {
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

/// What is known of a register while the steps are visited in order.
#[derive(Clone, Copy)]
struct Value<T> {
    operand: Option<Operand<T>>,
    /// Uses that are still to come.
    uses: u32,
}

struct Compiler<T> {
    values: Vec<Value<T>>,
    free: Vec<u16>,
    code: Code<T>,
}

impl<T: Number> Compiler<T> {
    fn new(expression: &Expression, direct: &[bool]) -> Self {
        let mut values = vec![Value { operand: None, uses: 0 }; expression.registers()];
        values[usize::from(expression.result().0)].uses = 1;
        // Backwards, so that a step that nothing uses does not count as a use.
        for (index, step) in expression.steps().iter().enumerate().rev() {
            if values[expression.inputs() + index].uses > 0 {
                step.operands().for_each(|r| values[usize::from(r.0)].uses += 1);
            }
        }
        for (input, _) in direct.iter().enumerate().take(expression.inputs()).filter(|(_, direct)| **direct) {
            values[input].operand = Some(Operand::Input(input as u16));
        }
        Self { values, free: Vec::new(), code: Code { instructions: Vec::new(), slots: 0 } }
    }

    fn compile(mut self, expression: &Expression) -> Code<T> {
        let result = usize::from(expression.result().0);
        for (index, step) in expression.steps().iter().enumerate() {
            let register = expression.inputs() + index;
            if self.values[register].uses > 0 {
                self.step(step, register, register == result);
            }
        }
        if expression.steps().is_empty() {
            self.emit(Action::Load(0), Place::Output);
        }
        self.code
    }

    /// Emits one step, or remembers its value if that is constant.
    fn step(&mut self, step: &Step, register: usize, is_result: bool) {
        let read: Vec<Register> = step.operands().collect();
        let operands: Vec<Operand<T>> = read.iter().map(|r| self.operand(*r)).collect();
        let action = match (*step, operands.as_slice()) {
            (Step::Constant(literal), _) => Action::Fill(T::literal(literal)),
            (Step::Unary(function, _), &[a]) => Action::Unary(function, a),
            (Step::Binary(function, ..), &[a, b]) => Action::Binary(function, a, b),
            (Step::Select(..), &[a, b, c]) => Action::Select(a, b, c),
            _ => unreachable!("a step has as many operands as its kind"),
        };
        match folded(action) {
            Some(value) if is_result => self.emit(Action::Fill(value), Place::Output),
            Some(value) => self.values[register].operand = Some(Operand::Constant(value)),
            None if is_result => self.emit(action, Place::Output),
            None => {
                // Before the operands' slots are freed: no instruction writes what it reads.
                let slot = self.slot();
                self.emit(action, Place::Slot(slot));
                self.values[register].operand = Some(Operand::Slot(slot));
            }
        }
        read.iter().for_each(|r| self.release(*r));
    }

    /// The register's operand, after loading it if it is an input that was not read yet.
    fn operand(&mut self, register: Register) -> Operand<T> {
        let index = usize::from(register.0);
        if let Some(operand) = self.values[index].operand {
            return operand;
        }
        let slot = self.slot();
        self.emit(Action::Load(register.0), Place::Slot(slot));
        self.values[index].operand = Some(Operand::Slot(slot));
        Operand::Slot(slot)
    }

    fn release(&mut self, register: Register) {
        let value = &mut self.values[usize::from(register.0)];
        value.uses -= 1;
        if value.uses == 0
            && let Some(Operand::Slot(slot)) = value.operand
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

    fn emit(&mut self, action: Action<T>, target: Place) {
        self.code.instructions.push(Instruction { action, target });
    }
}

/// The value of an action over constants, unless it is undefined (an integer division by zero).
fn folded<T: Number>(action: Action<T>) -> Option<T> {
    use super::source::Source::Scalar;
    use Operand::Constant;
    let mut value = [T::literal(crate::op::Literal::Int(0))];
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
    use super::*;
    use crate::op::Literal;

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
            };
            let Place::Slot(target) = *target else { continue };
            assert!(!read.contains(&Operand::Slot(target)), "{action:?} writes {target}");
        }
        assert_eq!(code.instructions.last().map(|i| i.target), Some(Place::Output));
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
        assert_eq!(code.instructions, [Instruction { action, target: Place::Output }]);
    }

    #[test]
    fn an_undefined_constant_is_left_to_run_time() {
        let zero = Step::Constant(Literal::Int(0));
        let steps = vec![zero, Step::Binary(Binary::Divide, register(0), register(0))];
        let code = Code::<i64>::new(&Expression::new(0, steps).expect("sound"), &[]).expect("few slots");
        assert_eq!(code.instructions.len(), 1);
    }
}
