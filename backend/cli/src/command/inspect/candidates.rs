//! Candidates for the next attempt if a node rejects the sizes of inputs: numbers in its error, sizes of its constants,
//! usual sizes.

use super::attempt::{Attempt, Elements, Outcome};
use anabranch::import::{Node, ValueIndex};
use anabranch::session::{Inputs, Session, ValueInfo};
use std::collections::BTreeSet;

/// Sizes that are reported for each dimension.
pub(super) const LADDER: [usize; 6] = [1, 2, 8, 32, 64, 224];

/// Further sizes that are tried.
const USUAL: [usize; 22] = [2, 8, 32, 64, 224, 3, 4, 16, 128, 256, 512, 5, 6, 7, 10, 12, 24, 28, 48, 96, 299, 768];

/// Largest number in an error or a constant that is taken for a size.
const MOST: usize = 1 << 20;

/// Most numbers from an error and constants that are tried.
const MOST_NUMBERS: usize = 12;

/// Most shapes from an error that are tried.
const MOST_SHAPES: usize = 32;

/// Most dimensions that are varied alone or in pairs.
const MOST_NAMES: usize = 64;

/// Shapes and numbers from an unsuited node.
pub(super) struct Candidates {
    /// Open dimensions of the inputs that the node depends on, each with whether it is the first dimension of one of
    /// them.
    ///
    /// Dimensions of the input that the node rejects come first.
    relevant: Vec<(String, bool)>,
    /// Names of the dimensions of each such input; `None` for numbers.
    inputs: Vec<Vec<Option<String>>>,
    /// Inputs that determine shapes and are not given.
    deciding: Vec<String>,
    shapes: Vec<Vec<usize>>,
    numbers: Vec<usize>,
}

impl Candidates {
    /// Collects candidates from the first node that an attempt does not suit. `None` if no node or input stops it.
    pub(super) fn of(session: &Session, given: &Inputs, outcome: &Outcome) -> Option<Self> {
        let is_needed = |input: &&ValueInfo| input.kind().is_tensor() && !input.is_optional();
        let missing = |input: &&ValueInfo| is_needed(input) && given.find(input.name()).is_none();
        let obstacle = outcome.unsuited(session)?;
        let node = session.model().nodes.iter().find(|node| node.name == obstacle.node);
        let above = node.map(|node| above_values(session, node.all_inputs()));
        let is_above = |input: &&ValueInfo| above.as_ref().is_none_or(|names| names.contains(input.name()));
        let mut inputs: Vec<_> = session.inputs().iter().filter(missing).filter(is_above).collect();
        let named = node.and_then(|node| node.input(input_in(&obstacle.reason)?));
        if let Some(value) = named {
            let closest = above_values(session, [value]);
            inputs.sort_by_key(|input| !closest.contains(input.name()));
        }
        let inputs: Vec<_> = inputs.into_iter().map(|input| open_names(input, &outcome.attempt)).collect();
        let decides = |name: &String| given.find(name).is_none();
        let (mut shapes, mut numbers) = (shapes_of(&obstacle.reason), numbers_of(&obstacle.reason));
        shapes.truncate(MOST_SHAPES);
        numbers.extend(node.into_iter().flat_map(|node| sizes_of_constants(session, node)));
        Some(Self {
            relevant: relevant(&inputs),
            inputs,
            deciding: session.deciding_inputs().into_iter().chain(obstacle.wanted).filter(decides).collect(),
            shapes,
            numbers: distinct(numbers),
        })
    }

    /// Returns attempts, the most promising first. They are made lazily: a model may have many open dimensions.
    pub(super) fn attempts<'a>(&'a self, best: &'a Outcome) -> impl Iterator<Item = Attempt> + 'a {
        let base = &best.attempt;
        self.elements(base)
            .chain(self.named_shapes(base))
            .chain(self.single(base, &self.numbers))
            .chain(self.last_alike(base))
            .chain(self.uniform(base, false))
            .chain(self.single(base, &USUAL))
            .chain(self.alike(base))
            .chain(self.pairs(base))
            .chain(self.uniform(base, true))
    }

    /// Varies the elements of inputs that determine shapes: of all, then of each.
    fn elements<'a>(&'a self, base: &'a Attempt) -> impl Iterator<Item = Attempt> + 'a {
        let set = move |names: &[String], elements: Elements| {
            let mut attempt = base.clone();
            attempt.elements.extend(names.iter().map(|name| (name.clone(), elements)));
            attempt
        };
        let groups = std::iter::once(&self.deciding[..]).chain(self.deciding.chunks(1));
        let some = groups.filter(|names| !names.is_empty());
        some.flat_map(move |names| Elements::ALL.map(|elements| set(names, elements)))
    }

    /// Tries whole shapes from the error, for inputs with as many dimensions.
    fn named_shapes<'a>(&'a self, base: &'a Attempt) -> impl Iterator<Item = Attempt> + 'a {
        self.shapes.iter().flat_map(move |shape| {
            let inputs = self.inputs.iter().filter(move |dims| dims.len() == shape.len());
            inputs.map(move |dims| {
                let sizes = dims.iter().zip(shape).filter_map(|(name, size)| Some((name.as_ref()?, *size)));
                with(base, sizes)
            })
        })
    }

    /// Tries each of these sizes for one dimension.
    fn single<'a>(&'a self, base: &'a Attempt, sizes: &'a [usize]) -> impl Iterator<Item = Attempt> + 'a {
        let names = self.relevant.iter().take(MOST_NAMES).map(|(name, _)| name);
        names.flat_map(move |name| sizes.iter().map(move |size| with(base, [(name, *size)])))
    }

    /// Tries equal sizes for all dimensions, with or without first dimensions.
    fn uniform<'a>(&'a self, base: &'a Attempt, with_first: bool) -> impl Iterator<Item = Attempt> + 'a {
        let kept = self.relevant.iter().filter(move |(_, first)| with_first || !first);
        let names: Vec<&String> = kept.map(|(name, _)| name).collect();
        let sizes = USUAL.iter().take(if names.len() > 1 { USUAL.len() } else { 0 });
        sizes.map(move |size| with(base, names.iter().map(|name| (*name, *size))))
    }

    /// Tries equal sizes for the last two open dimensions of each input: height and width.
    fn last_alike<'a>(&'a self, base: &'a Attempt) -> impl Iterator<Item = Attempt> + 'a {
        let last = self.inputs.iter().filter_map(|dims| {
            let mut open = dims.iter().flatten().rev();
            Some((open.next()?, open.next()?))
        });
        last.flat_map(move |(a, b)| USUAL.iter().map(move |size| with(base, [(a, *size), (b, *size)])))
    }

    /// Tries equal sizes for any two dimensions of one input.
    fn alike<'a>(&'a self, base: &'a Attempt) -> impl Iterator<Item = Attempt> + 'a {
        self.two_of_one().flat_map(move |(a, b)| {
            let sizes = USUAL.iter().chain(&self.numbers);
            sizes.map(move |size| with(base, [(a, *size), (b, *size)]))
        })
    }

    /// Tries pairs of the numbers for two dimensions of one input.
    fn pairs<'a>(&'a self, base: &'a Attempt) -> impl Iterator<Item = Attempt> + 'a {
        self.two_of_one().flat_map(move |(a, b)| {
            let both = self.numbers.iter().flat_map(|one| self.numbers.iter().map(move |other| (*one, *other)));
            let two = both.filter(|(one, other)| one != other);
            two.map(move |(one, other)| with(base, [(a, one), (b, other)]))
        })
    }

    fn two_of_one(&self) -> impl Iterator<Item = (&String, &String)> {
        self.inputs.iter().flat_map(|dims| {
            let open: Vec<_> = dims.iter().flatten().take(MOST_NAMES).collect();
            let mut pairs = Vec::new();
            for (at, one) in open.iter().enumerate().rev() {
                pairs.extend(open[at + 1..].iter().filter(|other| *other != one).map(|other| (*one, *other)));
            }
            pairs
        })
    }
}

/// Returns the open dimensions of inputs, each once, with whether it is the first dimension where it first occurs.
fn relevant(inputs: &[Vec<Option<String>>]) -> Vec<(String, bool)> {
    let mut known = BTreeSet::new();
    let dims = inputs.iter().flat_map(|dims| dims.iter().enumerate());
    let named = dims.filter_map(|(axis, name)| Some((name.as_ref()?, axis == 0)));
    named.filter(|(name, _)| known.insert(*name)).map(|(name, first)| (name.clone(), first)).collect()
}

fn with<'n>(base: &Attempt, sizes: impl IntoIterator<Item = (&'n String, usize)>) -> Attempt {
    let mut attempt = base.clone();
    attempt.sizes.extend(sizes.into_iter().map(|(name, size)| (name.clone(), size)));
    attempt
}

/// Returns for each dimension of an input its name, if its size is open.
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

/// Returns the names of the model's inputs that values depend on.
fn above_values(session: &Session, values: impl IntoIterator<Item = ValueIndex>) -> BTreeSet<&str> {
    let model = session.model();
    let mut values: BTreeSet<ValueIndex> = values.into_iter().collect();
    for earlier in model.nodes.iter().rev() {
        if earlier.outputs.iter().flatten().any(|output| values.contains(output)) {
            values.extend(earlier.all_inputs());
        }
    }
    model.inputs.iter().filter(|input| values.contains(&input.value)).map(|input| &*input.name).collect()
}

/// Returns the sizes of the constants that a node reads, and elements of constants that may be shapes.
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

/// Returns the product and the sum of several sizes.
fn together(sizes: &[usize]) -> [usize; 2] {
    let product = sizes.iter().filter(|size| **size > 0).fold(1usize, |all, size| all.saturating_mul(*size));
    [product, sizes.iter().fold(0usize, |all, size| all.saturating_add(*size))]
}

/// Returns the numbers in a text, and the products and sums of its lists.
fn numbers_of(text: &str) -> Vec<usize> {
    let single = text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    single.chain(lists_of(text).iter().flat_map(|list| together(list))).collect()
}

/// Returns the index of the node's input that an error names, such as 5 in `input 5 has shape 1×1×1`.
pub(super) fn input_in(text: &str) -> Option<usize> {
    let (_, rest) = text.split_once("input ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Returns the shapes in a text, such as `1×12×1×64` and `[1, 12, 1, 64]`.
fn shapes_of(text: &str) -> Vec<Vec<usize>> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '×').filter(|word| word.contains('×'));
    let shapes = words.filter_map(|word| word.split('×').map(|size| size.parse().ok()).collect());
    shapes.chain(lists_of(text)).collect()
}

/// Returns the lists of sizes in a text.
fn lists_of(text: &str) -> Vec<Vec<usize>> {
    let lists = text.split('[').skip(1).filter_map(|rest| rest.split_once(']'));
    lists.filter_map(|(list, _)| list.split(',').map(|size| size.trim().parse().ok()).collect()).collect()
}

/// Returns the first numbers that may be sizes, each once.
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
    use super::super::attempt::Tried;
    use super::*;

    #[test]
    fn attempts_at_many_inputs_are_made_one_by_one() {
        let names: Vec<String> = (0..10_000).map(|at| format!("dim_{at}")).collect();
        let inputs: Vec<_> = names.iter().map(|name| vec![Some(name.clone())]).collect();
        let candidates = Candidates {
            relevant: relevant(&inputs),
            inputs,
            deciding: Vec::new(),
            shapes: vec![vec![7]],
            numbers: vec![5],
        };
        let sizes = names.iter().map(|name| (name.clone(), 1)).collect();
        let attempt = Attempt { sizes, ..Attempt::default() };
        let best = Outcome { attempt, result: Ok(Tried { inputs: Inputs::new(), phases: false }), reached: 1 };
        let first = candidates.attempts(&best).next().expect("some");
        assert_eq!((first.sizes["dim_0"], first.sizes["dim_1"]), (7, 1));
        // Each shape, number and usual size for one dimension, then usual sizes for all.
        let all = candidates.attempts(&best).skip(10_000).count();
        assert_eq!(all, MOST_NAMES * (1 + USUAL.len()) + USUAL.len());
    }

    #[test]
    fn shapes_and_numbers_are_found_in_refusals() {
        let text = "shapes 1×12×1×64 and 1×1×7×64 differ, not only in dimension 2; f32[576×10]";
        assert_eq!(shapes_of(text), [vec![1, 12, 1, 64], vec![1, 1, 7, 64], vec![576, 10]]);
        assert_eq!(distinct(numbers_of(text)), [1, 12, 64, 7, 2, 32, 576, 10]);
        assert_eq!(shapes_of("not [1, 24, 6] or [-1, 2]"), [[1, 24, 6]]);
        assert_eq!(numbers_of("[30, 17]"), [30, 17, 510, 47]);
        assert_eq!((input_in("input 5 has shape 1×1"), input_in("an input of shape 1")), (Some(5), None));
        assert_eq!((shapes_of("no × here"), numbers_of("none")), (vec![], vec![]));
    }
}
