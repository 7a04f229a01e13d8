//! Sums of products over named axes, as transpositions, products of matrices and sums.

use super::matmul::multiplied;
use super::{Builder, Entry, Fault, Operator, View, domain_of};
use anabranch_kernels::op::ReduceKind;
use std::collections::BTreeMap;

pub(super) const TABLE: &[Entry] = &[("Einsum", einsum)];

/// Name of an axis: a letter, or for an axis under an ellipsis its distance from the ellipsis' end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Hidden(usize),
    Letter(char),
}

/// A view with a name for each axis.
#[derive(Clone, Debug)]
struct Term {
    view: View,
    labels: Vec<Label>,
}

fn einsum(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let equation: String = operator.string("equation", "")?.split_whitespace().collect();
    let views = operator.all_inputs()?;
    operator.number(0)?;
    for index in 1..views.len() {
        operator.typed(index, views[0].dtype())?;
    }
    let dtype = views[0].dtype();
    let views = match views.len() > 2 && dtype.is_float() {
        // Products of narrow floats are factors of others before they are rounded.
        true => views.iter().map(|view| builder.as_working(view)).collect::<Result<Vec<_>, _>>()?,
        false => views,
    };
    let (terms, result) = parse(&equation, &views)?;
    let sizes = sizes(&equation, &terms)?;
    let whole = |term: Term| diagonal(builder, unrepeated(term, &sizes)?);
    let terms = terms.into_iter().map(whole).collect::<Result<Vec<_>, _>>()?;
    let mut terms = terms.into_iter();
    let mut whole = terms.next().ok_or_else(|| Fault::missing(0))?;
    let mut rest: Vec<_> = terms.collect();
    rest.reverse();
    while let Some(next) = rest.pop() {
        let later = |label: &Label| result.contains(label) || rest.iter().any(|term| term.labels.contains(label));
        whole = contracted(builder, &whole, &next, &later)?;
    }
    let summed = summed(builder, &whole, &|label| result.contains(label))?;
    let place = |label: &Label| summed.labels.iter().position(|own| own == label);
    let order: Option<Vec<_>> = result.iter().map(place).collect();
    let order = order.ok_or_else(|| Fault::attribute("equation", &equation, "an output of the inputs' axes"))?;
    let whole = builder.transposed(&summed.view, &order)?;
    Ok(vec![builder.cast(&whole, dtype)?])
}

/// Parses the equation: the inputs with their axes' names, and the names of the output's axes.
fn parse(equation: &str, views: &[View]) -> Result<(Vec<Term>, Vec<Label>), Fault> {
    let fault = |expected: &str| Fault::attribute("equation", equation, expected);
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation, None),
    };
    let texts: Vec<_> = left.split(',').collect();
    if texts.len() != views.len() {
        return Err(fault(&format!("a term for each of {} inputs", views.len())));
    }
    let mut terms = Vec::new();
    let mut widest = 0;
    for (text, view) in texts.iter().zip(views) {
        let named = text.replace("...", "").chars().count();
        let hidden = if text.contains("...") { view.rank().checked_sub(named) } else { Some(0) };
        let hidden = hidden.ok_or_else(|| fault("terms of as many axes as the inputs have"))?;
        widest = widest.max(hidden);
        let labels = labels_of(text, hidden).ok_or_else(|| fault("terms of letters and ellipses"))?;
        if labels.len() != view.rank() {
            return Err(fault(&format!("a term of {} axes for the shape {}", view.rank(), view.shape())));
        }
        terms.push(Term { view: view.clone(), labels });
    }
    let result = match right {
        Some(right) => labels_of(right, widest)
            .filter(|labels| !has_repeats(labels))
            .ok_or_else(|| fault("letters, each once in the output"))?,
        None => implied(&terms, widest),
    };
    Ok((terms, result))
}

/// Whether an axis is named twice.
fn has_repeats(labels: &[Label]) -> bool {
    labels.iter().enumerate().any(|(index, label)| labels[..index].contains(label))
}

/// Replaces any two axes of one name, which have equal sizes by now, by their diagonal.
fn diagonal(builder: &mut Builder, mut term: Term) -> Result<Term, Fault> {
    let twice = |labels: &[Label]| {
        (0..labels.len())
            .find_map(|at| labels[..at].iter().position(|label| *label == labels[at]).map(|first| [first, at]))
    };
    while let Some([first, second]) = twice(&term.labels) {
        let rest = (0..term.labels.len()).filter(|axis| ![first, second].contains(axis));
        let order: Vec<_> = rest.chain([first, second]).collect();
        let view = builder.transposed(&term.view, &order)?;
        let (outer, size) = (&view.dims()[..order.len() - 2], term.view.dims()[first]);
        let flat = view.reshaped([outer, &[size.saturating_mul(size)]].concat())?;
        let mut steps = vec![1; flat.rank()];
        steps[flat.rank() - 1] = size as isize + 1;
        let counts = [outer, &[size]].concat();
        let view = builder.sliced(&flat, vec![0; flat.rank()], steps, counts)?;
        let labels = order[..order.len() - 1].iter().map(|axis| term.labels[*axis]).collect();
        term = Term { view, labels };
    }
    Ok(term)
}

/// Returns the axes that a term names, with `hidden` axes for its ellipsis.
fn labels_of(text: &str, hidden: usize) -> Option<Vec<Label>> {
    let (before, after) = text.split_once("...").unwrap_or((text, ""));
    let has_ellipsis = text.contains("...");
    let letters = |text: &str| text.chars().map(Label::Letter).collect::<Vec<_>>();
    let hidden: Vec<_> = if has_ellipsis { (0..hidden).rev().map(Label::Hidden).collect() } else { Vec::new() };
    let labels = [letters(before), hidden, letters(after)].concat();
    let sound = text.replace("...", "").chars().all(|letter| letter.is_ascii_alphabetic());
    sound.then_some(labels)
}

/// Returns the implied output of an equation without output: the ellipsis' axes, then the letters that are named once,
/// in alphabetical order.
fn implied(terms: &[Term], widest: usize) -> Vec<Label> {
    let mut counts: BTreeMap<Label, usize> = BTreeMap::new();
    terms.iter().flat_map(|term| &term.labels).for_each(|label| *counts.entry(*label).or_default() += 1);
    let letters = counts.into_iter().filter(|(label, count)| *count == 1 && matches!(label, Label::Letter(_)));
    (0..widest).rev().map(Label::Hidden).chain(letters.map(|(label, _)| label)).collect()
}

/// Returns the sizes of axes. Axes of one name have one size; size 1 fits any.
fn sizes(equation: &str, terms: &[Term]) -> Result<BTreeMap<Label, usize>, Fault> {
    let mut sizes: BTreeMap<Label, usize> = BTreeMap::new();
    for (label, dim) in terms.iter().flat_map(|term| term.labels.iter().zip(term.view.dims())) {
        let size = sizes.entry(*label).or_insert(*dim);
        match (*size, *dim) {
            (own, dim) if own == dim || dim == 1 => {}
            (1, dim) => *size = dim,
            (own, dim) => {
                return Err(Fault::invalid(format!(
                    "an axis of {equation} is {own} in one input and {dim} in another"
                )));
            }
        }
    }
    Ok(sizes)
}

/// Removes a term's axes of one element that are longer in other terms: their element is used for all indices.
fn unrepeated(term: Term, sizes: &BTreeMap<Label, usize>) -> Result<Term, Fault> {
    let dims = term.view.dims();
    let own = |axis: &usize| sizes.get(&term.labels[*axis]) == Some(&dims[*axis]);
    let kept: Vec<usize> = (0..dims.len()).filter(own).collect();
    let view = term.view.reshaped(kept.iter().map(|axis| dims[*axis]).collect::<Vec<_>>())?;
    Ok(Term { view, labels: kept.iter().map(|axis| term.labels[*axis]).collect() })
}

/// Sums the term over the axes that are no longer needed.
fn summed(builder: &mut Builder, term: &Term, wanted: &dyn Fn(&Label) -> bool) -> Result<Term, Fault> {
    let axes: Vec<_> = (0..term.labels.len()).filter(|axis| !wanted(&term.labels[*axis])).collect();
    if axes.is_empty() {
        return Ok(term.clone());
    }
    let view = builder.reduced(&term.view, ReduceKind::Sum, &axes)?;
    let kept = || (0..term.labels.len()).filter(|axis| !axes.contains(axis));
    let view = view.reshaped(kept().map(|axis| term.view.dims()[axis]).collect::<Vec<_>>())?;
    Ok(Term { view, labels: kept().map(|axis| term.labels[axis]).collect() })
}

/// Multiplies two terms, and sums over the axes that only they have and that are not needed later.
fn contracted(builder: &mut Builder, a: &Term, b: &Term, later: &dyn Fn(&Label) -> bool) -> Result<Term, Fault> {
    let a = summed(builder, a, &|label| later(label) || b.labels.contains(label))?;
    let b = summed(builder, b, &|label| later(label) || a.labels.contains(label))?;
    let shared = |label: &&Label| b.labels.contains(label);
    let batch: Vec<_> = a.labels.iter().filter(shared).filter(|label| later(label)).copied().collect();
    let inner: Vec<_> = a.labels.iter().filter(shared).filter(|label| !later(label)).copied().collect();
    let left: Vec<_> = a.labels.iter().filter(|label| !b.labels.contains(label)).copied().collect();
    let right: Vec<_> = b.labels.iter().filter(|label| !a.labels.contains(label)).copied().collect();

    let a_view = ordered(builder, &a, &[&batch, &left, &inner])?;
    let b_view = ordered(builder, &b, &[&batch, &inner, &right])?;
    let count = batch.len();
    let (a_batch, a_rest) = a_view.dims().split_at(count);
    let (b_batch, b_rest) = b_view.dims().split_at(count);
    let (left_dims, inner_dims) = a_rest.split_at(left.len());
    let right_dims = &b_rest[inner.len()..];
    let product = |dims: &[usize]| dims.iter().product::<usize>();

    let view = if inner.is_empty() {
        let ones = |count: usize| vec![1; count];
        let a_view = a_view.reshaped([a_view.dims(), &ones(right.len())].concat())?;
        let b_view = b_view.reshaped([b_batch, &ones(left.len()), right_dims].concat())?;
        builder.map(domain_of(a_view.dtype()), [&a_view, &b_view], a_view.dtype(), |[a, b]| a * b)?
    } else {
        let depth = product(inner_dims);
        let a_matrix = a_view.reshaped([a_batch, &[product(left_dims), depth]].concat())?;
        let b_matrix = b_view.reshaped([b_batch, &[depth, product(right_dims)]].concat())?;
        let matrix = multiplied(builder, &a_matrix, &b_matrix)?;
        let dims = [&matrix.dims()[..count], left_dims, right_dims].concat();
        matrix.reshaped(dims)?
    };
    Ok(Term { view, labels: [batch, left, right].concat() })
}

/// Returns the term's view with its axes in the order of the groups.
fn ordered(builder: &mut Builder, term: &Term, groups: &[&Vec<Label>]) -> Result<View, Fault> {
    let wanted = groups.iter().flat_map(|group| group.iter());
    let axis = |label: &Label| term.labels.iter().position(|own| own == label);
    let order: Option<Vec<_>> = wanted.map(axis).collect();
    builder.transposed(&term.view, &order.ok_or_else(|| Fault::invalid("an axis without a name"))?)
}
