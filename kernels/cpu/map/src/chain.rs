//! Chains of cheap steps around one function, computed in a single pass.
//!
//! A pass over a block costs as much as a dozen instructions per element, so it pays to join steps that scale, shift,
//! clamp or combine. `x / 2 · (1 + erf(x / √2))` is one pass instead of five. Steps are joined into a [`Chain`] as long
//! as they fit; a step that does not fit begins a new pass.

use anabranch_op::op::{Binary, Unary};

/// Function in the middle of a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Middle {
    Identity,
    /// Clamp between two bounds; NaN stays NaN.
    Clamp(f32, f32),
    /// The product with a slope below zero, the number itself elsewhere.
    Leaky(f32),
    Abs,
    Square,
    Cube,
    /// Exponential function.
    Exp,
    Sigmoid,
    Tanh,
    Erf,
}

/// Operation that joins a chain with its second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    Nothing,
    Times,
    Plus,
}

/// Chain `join(middle(a · scale + shift) · factor + offset, b) · last`, each operation rounded by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chain {
    pub(crate) scale: f32,
    pub(crate) shift: f32,
    pub(crate) middle: Middle,
    pub(crate) factor: f32,
    pub(crate) offset: f32,
    pub(crate) join: Join,
    pub(crate) last: f32,
    /// First part that is still free.
    pub(crate) stage: Stage,
}

/// Parts of a chain, in the order in which they are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Scale,
    /// The scale is a rounded reciprocal. Only a smooth function may follow, because a step of a staircase may lie
    /// between the product and the quotient. A chain of this step alone is computed as the step, not as a chain.
    Quotient,
    Shift,
    Middle,
    Upper,
    Factor,
    Offset,
    Join,
    Last,
    End,
}

impl Chain {
    /// Chain that changes nothing, which any first step extends. Adding −0 leaves every number unchanged.
    pub(crate) const EMPTY: Self = Self {
        scale: 1.0,
        shift: -0.0,
        middle: Middle::Identity,
        factor: 1.0,
        offset: -0.0,
        join: Join::Nothing,
        last: 1.0,
        stage: Stage::Scale,
    };

    /// Returns the chain of a product with `slope` below zero alone.
    pub(crate) fn leaky(slope: f32) -> Self {
        Self { middle: Middle::Leaky(slope), stage: Stage::Factor, ..Self::EMPTY }
    }

    /// Returns the factor, if the chain is a product with a constant and nothing else.
    pub(crate) fn only_factor(&self) -> Option<f32> {
        (*self == Self { scale: self.scale, stage: Stage::Shift, ..Self::EMPTY }).then_some(self.scale)
    }

    /// Whether the chain is only the function in the middle and its join.
    pub(crate) fn is_plain(&self) -> bool {
        let Self { middle, join, stage, .. } = *self;
        *self == Self { middle, join, stage, ..Self::EMPTY }
    }

    /// Returns the chain followed by a function of one operand, if the function fits.
    pub(crate) fn then_unary(self, function: Unary) -> Option<Self> {
        match function {
            // A quotient that is one number becomes another by the rounded reciprocal.
            Unary::Relu | Unary::Abs if self.stage == Stage::Quotient => None,
            Unary::Relu => self.at_least(0.0),
            Unary::Abs => self.then_middle(Middle::Abs, Stage::Factor),
            Unary::Exp => self.then_middle(Middle::Exp, Stage::Factor),
            Unary::Sigmoid => self.then_middle(Middle::Sigmoid, Stage::Factor),
            Unary::Tanh => self.then_middle(Middle::Tanh, Stage::Factor),
            Unary::Erf => self.then_middle(Middle::Erf, Stage::Factor),
            Unary::Negate => self.times(-1.0),
            _ => None,
        }
    }

    /// Returns the chain followed by a function of it and a constant, if the function fits.
    pub(crate) fn then_constant(self, function: Binary, constant: f32) -> Option<Self> {
        match function {
            _ if self.stage == Stage::Quotient => None,
            Binary::Multiply => self.times(constant),
            Binary::Divide => match exact_reciprocal(constant) {
                Some(factor) => self.times(factor),
                None if self.stage == Stage::Scale => {
                    Some(Self { scale: reciprocal(constant)?, stage: Stage::Quotient, ..self })
                }
                None => None,
            },
            Binary::Add => self.plus(constant),
            Binary::Subtract => self.plus(-constant),
            Binary::Max if !constant.is_nan() => self.at_least(constant),
            Binary::Min if !constant.is_nan() => self.at_most(constant),
            Binary::Power if constant == 2.0 => self.then_middle(Middle::Square, Stage::Factor),
            Binary::Power if constant == 3.0 => self.then_middle(Middle::Cube, Stage::Factor),
            _ => None,
        }
    }

    /// Returns a function of a constant and the chain, in this order, if it fits.
    pub(crate) fn after_constant(self, function: Binary, constant: f32) -> Option<Self> {
        match function {
            Binary::Multiply | Binary::Add => self.then_constant(function, constant),
            Binary::Subtract => self.times(-1.0)?.plus(constant),
            _ => None,
        }
    }

    /// Returns a function of the chain and a second operand, in any order, if it fits.
    pub(crate) fn then_join(self, function: Binary) -> Option<Self> {
        let join = match function {
            Binary::Multiply => Join::Times,
            Binary::Add => Join::Plus,
            _ => return None,
        };
        let has_room = self.stage <= Stage::Join && self.stage != Stage::Quotient;
        has_room.then_some(Self { join, stage: Stage::Last, ..self })
    }

    fn then_middle(self, middle: Middle, stage: Stage) -> Option<Self> {
        (self.stage <= Stage::Middle).then_some(Self { middle, stage, ..self })
    }

    fn at_least(self, lower: f32) -> Option<Self> {
        match self.middle {
            // If the bounds are in order, either may come first.
            Middle::Clamp(f32::NEG_INFINITY, upper) if self.stage == Stage::Factor && lower <= upper => {
                Some(Self { middle: Middle::Clamp(lower, upper), ..self })
            }
            _ => self.then_middle(Middle::Clamp(lower, f32::INFINITY), Stage::Upper),
        }
    }

    fn at_most(self, upper: f32) -> Option<Self> {
        match self.middle {
            Middle::Clamp(lower, _) if self.stage == Stage::Upper => {
                Some(Self { middle: Middle::Clamp(lower, upper), stage: Stage::Factor, ..self })
            }
            _ => self.then_middle(Middle::Clamp(f32::NEG_INFINITY, upper), Stage::Factor),
        }
    }

    fn times(self, factor: f32) -> Option<Self> {
        match self.stage {
            Stage::Scale => Some(Self { scale: factor, stage: Stage::Shift, ..self }),
            Stage::Shift | Stage::Middle | Stage::Upper | Stage::Factor => {
                Some(Self { factor, stage: Stage::Offset, ..self })
            }
            Stage::Offset | Stage::Join | Stage::Last => Some(Self { last: factor, stage: Stage::End, ..self }),
            Stage::Quotient | Stage::End => None,
        }
    }

    fn plus(self, summand: f32) -> Option<Self> {
        match self.stage {
            Stage::Scale | Stage::Shift => Some(Self { shift: summand, stage: Stage::Middle, ..self }),
            Stage::Middle | Stage::Upper | Stage::Factor | Stage::Offset => {
                Some(Self { offset: summand, stage: Stage::Join, ..self })
            }
            Stage::Quotient | Stage::Join | Stage::Last | Stage::End => None,
        }
    }
}

/// Returns `1 / divisor` if multiplying by it equals dividing, bit for bit: for powers of two.
pub(super) fn exact_reciprocal(divisor: f32) -> Option<f32> {
    const MANTISSA: u32 = (1 << (f32::MANTISSA_DIGITS - 1)) - 1;
    reciprocal(divisor).filter(|_| divisor.to_bits() & MANTISSA == 0)
}

/// Returns `1 / divisor`, if both are normal numbers. Multiplying by it differs from dividing by at most two roundings.
pub(super) fn reciprocal(divisor: f32) -> Option<f32> {
    let reciprocal = 1.0 / divisor;
    (divisor.is_normal() && reciprocal.is_normal()).then_some(reciprocal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_activations_are_one_chain() {
        let gelu = Chain::EMPTY
            .then_constant(Binary::Divide, std::f32::consts::SQRT_2)
            .and_then(|c| c.then_unary(Unary::Erf))
            .and_then(|c| c.then_constant(Binary::Add, 1.0))
            .and_then(|c| c.then_join(Binary::Multiply))
            .and_then(|c| c.then_constant(Binary::Multiply, 0.5));
        assert!(gelu.is_some_and(|c| c.middle == Middle::Erf && c.offset == 1.0 && c.last == 0.5));
        let hard_swish = Chain::EMPTY
            .then_constant(Binary::Add, 3.0)
            .and_then(|c| c.then_constant(Binary::Max, 0.0))
            .and_then(|c| c.then_constant(Binary::Min, 6.0))
            .and_then(|c| c.then_join(Binary::Multiply))
            .and_then(|c| c.then_constant(Binary::Divide, 8.0));
        assert!(hard_swish.is_some_and(|c| c.middle == Middle::Clamp(0.0, 6.0) && c.shift == 3.0));
        let within_tanh = Chain::EMPTY
            .then_constant(Binary::Power, 3.0)
            .and_then(|c| c.then_constant(Binary::Multiply, 0.044715))
            .and_then(|c| c.then_join(Binary::Add))
            .and_then(|c| c.then_constant(Binary::Multiply, 0.79788));
        assert!(within_tanh.is_some_and(|c| c.middle == Middle::Cube && c.join == Join::Plus));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let tanh = Chain::EMPTY.then_unary(Unary::Tanh).expect("fits");
        assert_eq!(tanh.then_unary(Unary::Exp), None);
        assert_eq!(tanh.then_constant(Binary::Divide, 0.0), None);
        assert_eq!(tanh.then_constant(Binary::Power, 2.0), None);
        assert_eq!(Chain::EMPTY.then_constant(Binary::Power, 2.5), None);
        // A rounded reciprocal may precede smooth functions only.
        let seventh = Chain::EMPTY.then_constant(Binary::Divide, 7.0).expect("fits");
        assert!(seventh.then_unary(Unary::Erf).is_some());
        assert_eq!(seventh.then_unary(Unary::Relu), None);
        assert_eq!(seventh.then_unary(Unary::Abs), None);
        assert_eq!(seventh.then_constant(Binary::Add, 1.0), None);
        assert_eq!(seventh.then_join(Binary::Multiply), None);
        assert_eq!(seventh.after_constant(Binary::Subtract, 1.0), None);
        let positive = Chain::EMPTY.then_unary(Unary::Relu).expect("fits");
        assert_eq!(positive.then_constant(Binary::Divide, 7.0), None);
        assert!(positive.then_constant(Binary::Divide, 0.25).is_some_and(|c| c.factor == 4.0));
        let joined = tanh.then_join(Binary::Add).expect("fits");
        assert_eq!(joined.then_join(Binary::Add), None);
        assert_eq!(joined.then_constant(Binary::Add, 1.0), None);
        // If the bounds are not in order, min after max is another clamp than max after min.
        let below = Chain::EMPTY.then_constant(Binary::Min, 1.0).expect("fits");
        assert_eq!(below.then_constant(Binary::Max, 2.0), None);
        assert!(below.then_constant(Binary::Max, 0.0).is_some_and(|c| c.middle == Middle::Clamp(0.0, 1.0)));
    }
}
