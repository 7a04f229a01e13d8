//! Expressions as formulas that people read: `relu(result + input 3)`.

use anabranch_kernels::op::{Binary, Expression, Step, Unary};

/// Most characters of a formula. A register that is used twice is written twice, so formulas can double with each step.
const MOST_CHARACTERS: usize = 160;

/// Most functions that are listed instead of a formula that is too long.
const MOST_FUNCTIONS: usize = 16;

/// Returns the formula of an expression's value, or its functions in order if the formula would be too long. `input`
/// names an input by its index.
pub(super) fn formula(expression: &Expression, input: impl Fn(usize) -> String) -> String {
    let mut terms: Vec<Term> = (0..expression.inputs()).map(|index| Term::whole(input(index))).collect();
    for step in expression.steps() {
        let term = term(step, &terms);
        if term.text.chars().count() > MOST_CHARACTERS {
            return functions(expression);
        }
        terms.push(term);
    }
    terms.pop().map(|term| term.text).unwrap_or_default()
}

/// A register as text.
struct Term {
    text: String,
    /// Whether it needs parentheses as an operand of `+`, `−`, `×` and `÷`.
    infix: bool,
}

impl Term {
    fn whole(text: String) -> Self {
        Self { text, infix: false }
    }

    fn operand(&self) -> String {
        if self.infix { format!("({})", self.text) } else { self.text.clone() }
    }
}

fn term(step: &Step, terms: &[Term]) -> Term {
    let at = |register: anabranch_kernels::op::Register| &terms[usize::from(register.0)];
    match *step {
        Step::Constant(literal) => Term::whole(literal.to_string().trim_end_matches(".0").to_owned()),
        Step::Unary(Unary::Negate, a) => Term::whole(format!("−{}", at(a).operand())),
        Step::Unary(function, a) => Term::whole(format!("{}({})", unary(function), at(a).text)),
        Step::Binary(function, a, b) => match sign(function) {
            Some(sign) => Term { text: format!("{} {sign} {}", at(a).operand(), at(b).operand()), infix: true },
            None => Term::whole(format!("{}({}, {})", words(function), at(a).text, at(b).text)),
        },
        Step::Select(a, b, c) => Term::whole(format!("select({}, {}, {})", at(a).text, at(b).text, at(c).text)),
    }
}

fn sign(function: Binary) -> Option<&'static str> {
    Some(match function {
        Binary::Add => "+",
        Binary::Subtract => "−",
        Binary::Multiply => "×",
        Binary::Divide => "÷",
        Binary::Less => "<",
        Binary::LessOrEqual => "≤",
        Binary::Greater => ">",
        Binary::GreaterOrEqual => "≥",
        Binary::Equal => "=",
        _ => return None,
    })
}

fn unary(function: Unary) -> String {
    match function {
        Unary::Narrowed(dtype) => format!("as {dtype}"),
        _ => words(function),
    }
}

/// Returns the name of a variant in words: `floor modulo`.
pub(super) fn words(variant: impl std::fmt::Debug) -> String {
    let mut words = String::new();
    for character in format!("{variant:?}").chars() {
        if character.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(character.to_lowercase());
    }
    words
}

/// Returns the functions of an expression, in order; the rest are counted.
fn functions(expression: &Expression) -> String {
    let name = |step: &Step| match *step {
        Step::Constant(_) => None,
        Step::Unary(function, _) => Some(unary(function)),
        Step::Binary(function, ..) => Some(words(function)),
        Step::Select(..) => Some("select".to_owned()),
    };
    let all: Vec<String> = expression.steps().iter().filter_map(name).collect();
    let shown = all.iter().take(MOST_FUNCTIONS).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(MOST_FUNCTIONS) {
        0 => shown,
        more => format!("{shown} and {more} more functions"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::op::{Literal, Register};

    fn of(inputs: usize, steps: Vec<Step>) -> String {
        formula(&Expression::new(inputs, steps).expect("valid"), |index| format!("x{index}"))
    }

    #[test]
    fn sums_have_signs_and_parentheses_and_functions_have_names() {
        let [a, b, c, d] = [0, 1, 2, 3].map(Register);
        let added = Step::Binary(Binary::Add, a, b);
        assert_eq!(of(2, vec![added, Step::Unary(Unary::Relu, c)]), "relu(x0 + x1)");
        assert_eq!(of(2, vec![added, Step::Binary(Binary::Multiply, c, a)]), "(x0 + x1) × x0");
        assert_eq!(of(1, vec![Step::Constant(Literal::Float(0.5)), Step::Binary(Binary::Max, a, b)]), "max(x0, 0.5)");
        assert_eq!(of(1, vec![Step::Constant(Literal::Float(10.0)), Step::Binary(Binary::Min, a, b)]), "min(x0, 10)");
        assert_eq!(of(2, vec![added, Step::Unary(Unary::Negate, c)]), "−(x0 + x1)");
        assert_eq!(of(3, vec![Step::Select(a, b, c), Step::Unary(Unary::IsNan, d)]), "is nan(select(x0, x1, x2))");
        assert_eq!(of(2, vec![Step::Binary(Binary::FloorModulo, a, b)]), "floor modulo(x0, x1)");
        let narrowed = Unary::Narrowed(anabranch_kernels::DType::F16);
        assert_eq!(of(1, vec![Step::Unary(narrowed, a)]), "as f16(x0)");
        assert_eq!(of(1, Vec::new()), "x0");
    }

    #[test]
    fn a_formula_that_doubles_with_each_step_is_a_short_list() {
        let doubled = |at: u16| Step::Binary(Binary::Add, Register(at), Register(at));
        let text = of(1, (0..60).map(doubled).collect());
        assert_eq!(text, format!("{} and 44 more functions", ["add"; 16].join(", ")));
    }
}
