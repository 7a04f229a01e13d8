//! What to try next when the sizes of inputs do not suit a node: what its refusal names, what its constants have, and what is usual.

use super::attempt::{Attempt, Elements, Outcome};
use anabranch::import::{Node, ValueIndex};
use anabranch::session::{Inputs, Session, ValueInfo};
use std::collections::BTreeSet;

/// Sizes that are told of each dimension.
pub(super) const LADDER: [usize; 6] = [1, 2, 8, 32, 64, 224];

/// Sizes that are tried beside those.
const USUAL: [usize; 22] = [2, 8, 32, 64, 224, 3, 4, 16, 128, 256, 512, 5, 6, 7, 10, 12, 24, 28, 48, 96, 299, 768];

/// The largest size that a refusal or a constant is believed to tell.
const MOST: usize = 1 << 20;

/// Numbers that are tried of those that a refusal and constants name.
const MOST_NUMBERS: usize = 12;

/// What an unsuited node tells.
pub(super) struct Candidates {
    /// Open dimensions of the inputs that the node depends on, each with whether it stands first in one of them.
    relevant: Vec<(String, bool)>,
    /// Names of the dimensions of each such input: none for numbers.
    inputs: Vec<Vec<Option<String>>>,
    /// Inputs that decide shapes, and are not given.
    deciding: Vec<String>,
    shapes: Vec<Vec<usize>>,
    numbers: Vec<usize>,
}

impl Candidates {
    /// What the first node tells that an attempt does not suit; nothing where no node or input stops it.
    pub(super) fn of(session: &Session, given: &Inputs, outcome: &Outcome) -> Option<Self> {
        let missing = |input: &&ValueInfo| !input.is_optional() && given.find(input.name()).is_none();
        let obstacle = outcome.unsuited(session)?;
        let node = session.model().nodes.iter().find(|node| node.name == obstacle.node);
        let above = node.map(|node| inputs_above(session, node));
        let is_above = |input: &&ValueInfo| above.as_ref().is_none_or(|names| names.contains(input.name()));
        let inputs = session.inputs().iter().filter(missing).filter(is_above);
        let inputs: Vec<_> = inputs.map(|input| open_names(input, &outcome.attempt)).collect();
        let mut relevant: Vec<(String, bool)> = Vec::new();
        for (axis, name) in inputs.iter().flat_map(|dims| dims.iter().enumerate()) {
            if let Some(name) = name.as_ref().filter(|name| relevant.iter().all(|(known, _)| known != *name)) {
                relevant.push((name.clone(), axis == 0));
            }
        }
        let decides = |name: &String| given.find(name).is_none();
        let (shapes, mut numbers) = (shapes_of(&obstacle.reason), numbers_of(&obstacle.reason));
        numbers.extend(node.into_iter().flat_map(|node| sizes_of_constants(session, node)));
        Some(Self {
            relevant,
            inputs,
            deciding: session.deciding_inputs().into_iter().chain(obstacle.wanted).filter(decides).collect(),
            shapes,
            numbers: distinct(numbers),
        })
    }

    /// Attempts in the order in which they are worth trying.
    pub(super) fn attempts(&self, best: &Outcome) -> Vec<Attempt> {
        let base = &best.attempt;
        let single = |values: &[usize]| {
            let pairs = self.relevant.iter().flat_map(|(name, _)| values.iter().map(move |size| (name, *size)));
            pairs.map(|(name, size)| with(base, [(name, size)])).collect::<Vec<_>>()
        };
        let inner: Vec<_> = self.relevant.iter().filter(|(_, first)| !first).map(|(name, _)| name).collect();
        let uniform = |names: &[&String]| {
            let some = USUAL.iter().filter(|_| names.len() > 1);
            some.map(|size| with(base, names.iter().map(|name| (*name, *size)))).collect::<Vec<_>>()
        };
        let all: Vec<_> = self.relevant.iter().map(|(name, _)| name).collect();
        [
            self.elements(base),
            self.named_shapes(base),
            single(&self.numbers),
            self.last_alike(base),
            uniform(&inner),
            single(&USUAL),
            self.alike(base),
            self.pairs(base),
            uniform(&all),
        ]
        .concat()
    }

    /// Elements of inputs that decide shapes: of all, then of each.
    fn elements(&self, base: &Attempt) -> Vec<Attempt> {
        let set = |names: &[String], elements: Elements| {
            let mut attempt = base.clone();
            attempt.elements.extend(names.iter().map(|name| (name.clone(), elements)));
            attempt
        };
        let groups = std::iter::once(&self.deciding[..]).chain(self.deciding.chunks(1));
        groups
            .filter(|names| !names.is_empty())
            .flat_map(|names| Elements::ALL.map(|elements| set(names, elements)))
            .collect()
    }

    /// Whole shapes that the refusal names, for inputs of as many dimensions.
    fn named_shapes(&self, base: &Attempt) -> Vec<Attempt> {
        let mut attempts = Vec::new();
        for shape in &self.shapes {
            for dims in self.inputs.iter().filter(|dims| dims.len() == shape.len()) {
                let sizes = dims.iter().zip(shape).filter_map(|(name, size)| Some((name.as_ref()?, *size)));
                attempts.push(with(base, sizes));
            }
        }
        attempts
    }

    /// The last two open dimensions of each input, alike: height and width.
    fn last_alike(&self, base: &Attempt) -> Vec<Attempt> {
        let last = self.inputs.iter().filter_map(|dims| {
            let mut open = dims.iter().flatten().rev();
            Some((open.next()?, open.next()?))
        });
        last.flat_map(|(a, b)| USUAL.iter().map(move |size| with(base, [(a, *size), (b, *size)]))).collect()
    }

    /// Any two dimensions of one input, alike.
    fn alike(&self, base: &Attempt) -> Vec<Attempt> {
        let attempts = self
            .two_of_one()
            .into_iter()
            .flat_map(|(a, b)| USUAL.iter().chain(&self.numbers).map(move |size| with(base, [(a, *size), (b, *size)])));
        attempts.collect()
    }

    /// Two dimensions of one input, with numbers that are named.
    fn pairs(&self, base: &Attempt) -> Vec<Attempt> {
        let two = |numbers: &[usize]| {
            let both = numbers.iter().flat_map(|one| numbers.iter().map(move |other| (*one, *other)));
            both.filter(|(one, other)| one != other).collect::<Vec<_>>()
        };
        let sizes = two(&self.numbers);
        let pairs = self.two_of_one().into_iter();
        pairs.flat_map(|(a, b)| sizes.iter().map(move |(one, other)| with(base, [(a, *one), (b, *other)]))).collect()
    }

    fn two_of_one(&self) -> Vec<(&String, &String)> {
        let mut pairs = Vec::new();
        for dims in &self.inputs {
            let open: Vec<_> = dims.iter().flatten().collect();
            for (at, one) in open.iter().enumerate().rev() {
                pairs.extend(open[at + 1..].iter().filter(|other| *other != one).map(|other| (*one, *other)));
            }
        }
        pairs
    }
}

fn with<'n>(base: &Attempt, sizes: impl IntoIterator<Item = (&'n String, usize)>) -> Attempt {
    let mut attempt = base.clone();
    attempt.sizes.extend(sizes.into_iter().map(|(name, size)| (name.clone(), size)));
    attempt
}

/// For each dimension of an input its name, if its size is open.
pub(super) fn open_names(input: &ValueInfo, attempt: &Attempt) -> Vec<Option<String>> {
    let open = |name: &String| attempt.sizes.contains_key(name);
    match input.dims() {
        Some(dims) => {
            let names = dims.iter().enumerate().map(|(axis, dim)| dim.open_name(input.name(), axis));
            names.map(|name| name.filter(open)).collect()
        }
        None => (0..).map(|axis| format!("{}[{axis}]", input.name())).take_while(open).map(Some).collect(),
    }
}

/// The inputs of the model that a node depends on, by name.
fn inputs_above<'s>(session: &'s Session, node: &Node) -> BTreeSet<&'s str> {
    let model = session.model();
    let mut values: BTreeSet<ValueIndex> = node.all_inputs().collect();
    for earlier in model.nodes.iter().rev() {
        if earlier.outputs.iter().flatten().any(|output| values.contains(output)) {
            values.extend(earlier.all_inputs());
        }
    }
    model.inputs.iter().filter(|input| values.contains(&input.value)).map(|input| &*input.name).collect()
}

/// Sizes that the constants which a node reads have, and elements of those that may be shapes.
fn sizes_of_constants(session: &Session, node: &Node) -> Vec<usize> {
    let constants = node.all_inputs().filter_map(|value| session.model().initializers.get(&value));
    let sizes = constants.flat_map(|constant| {
        let held = constant.held().filter(|tensor| tensor.shape().elements() <= MOST_NUMBERS);
        let elements: Vec<i64> =
            held.and_then(|tensor| tensor.elements::<i64>().map(<[i64]>::to_vec)).unwrap_or_default();
        let positive: Vec<usize> = elements.iter().filter_map(|element| usize::try_from(*element).ok()).collect();
        let ends = together(&positive);
        constant.shape().dims().iter().copied().chain(positive).chain(ends).collect::<Vec<_>>()
    });
    sizes.collect()
}

/// The product and the sum of several sizes.
fn together(sizes: &[usize]) -> [usize; 2] {
    let product = sizes.iter().filter(|size| **size > 0).fold(1usize, |all, size| all.saturating_mul(*size));
    [product, sizes.iter().fold(0usize, |all, size| all.saturating_add(*size))]
}

/// The numbers in a text, and what the numbers of its lists are together.
fn numbers_of(text: &str) -> Vec<usize> {
    let single = text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    single.chain(lists_of(text).iter().flat_map(|list| together(list))).collect()
}

/// The shapes in a text, such as `1×12×1×64` and `[1, 12, 1, 64]`.
fn shapes_of(text: &str) -> Vec<Vec<usize>> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '×').filter(|word| word.contains('×'));
    let shapes = words.filter_map(|word| word.split('×').map(|size| size.parse().ok()).collect());
    shapes.chain(lists_of(text)).collect()
}

/// The lists of sizes in a text.
fn lists_of(text: &str) -> Vec<Vec<usize>> {
    let lists = text.split('[').skip(1).filter_map(|rest| rest.split_once(']'));
    lists.filter_map(|(list, _)| list.split(',').map(|size| size.trim().parse().ok()).collect()).collect()
}

/// The first of those that may be sizes, each once.
fn distinct(numbers: Vec<usize>) -> Vec<usize> {
    let mut kept = Vec::new();
    for number in numbers {
        if (1..=MOST).contains(&number) && !kept.contains(&number) && kept.len() < MOST_NUMBERS {
            kept.push(number);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_numbers_are_found_in_refusals() {
        let text = "shapes 1×12×1×64 and 1×1×7×64 differ, not only in dimension 2; f32[576×10]";
        assert_eq!(shapes_of(text), [vec![1, 12, 1, 64], vec![1, 1, 7, 64], vec![576, 10]]);
        assert_eq!(distinct(numbers_of(text)), [1, 12, 64, 7, 2, 32, 576, 10]);
        assert_eq!(shapes_of("not [1, 24, 6] or [-1, 2]"), [[1, 24, 6]]);
        assert_eq!(numbers_of("[30, 17]"), [30, 17, 510, 47]);
        assert_eq!((shapes_of("no × here"), numbers_of("none")), (vec![], vec![]));
    }
}
