//! Losses over classes, which stand along axis 1: the addends are selected by comparing each class with the target.

use super::softmax::normalized;
use super::{Builder, Entry, Fault, Operator, View, domain_of, working};
use anabranch_kernels::op::{Binary, ReduceKind};

pub(super) const TABLE: &[Entry] =
    &[("NegativeLogLikelihoodLoss", of_logarithms), ("SoftmaxCrossEntropyLoss", of_scores)];

fn of_logarithms(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    Ok(vec![loss(operator, builder, operator.float_input(0)?)?])
}

fn of_scores(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let logarithms = normalized(builder, operator.ranked(0, 2)?, 1, true)?;
    Ok(vec![loss(operator, builder, &logarithms)?, logarithms])
}

/// Returns `−w · x` of the target's class at each position, and their sum, or their sum over that of the weights.
fn loss(operator: &Operator<'_>, builder: &mut Builder, x: &View) -> Result<View, Fault> {
    let target = operator.number(1)?;
    let fits = x.rank() >= 2 && target.rank() + 1 == x.rank();
    let fits = fits && target.dims()[0] == x.dims()[0] && target.dims()[1..] == x.dims()[2..];
    if !fits || target.dtype().is_float() {
        let (target, x) = (&target.spec, x.shape());
        return Err(Fault::invalid(format!("a target {target} does not fit an input of shape {x}")));
    }
    let (classes, rank) = (x.dims()[1], x.rank());
    if classes >= 1 << 24 {
        return Err(Fault::unsupported(format!("{classes} classes")));
    }
    let mut dims = x.dims().to_vec();
    dims[1] = 1;
    let target = target.reshaped(dims)?;
    let (domain, work) = (domain_of(x.dtype()), working(x.dtype()));
    let class = builder.indices(work, classes, 1, rank)?;
    let ignored = operator.node.int("ignore_index")?;
    let weight = match operator.optional(2) {
        Some(_) => super::quantize::along(operator.typed(2, x.dtype())?, 1, rank)?,
        None => builder.scalar(x.dtype(), 1.0)?,
    };
    // Weight of the target's class; zero for all other classes and ignored targets.
    let chosen = builder.map(domain, [&target, &class, &weight], work, |[target, class, weight]| {
        let hit = target.with(Binary::Equal, class).select(weight, 0.0);
        match ignored {
            Some(ignored) => target.with(Binary::Equal, ignored as f64).select(0.0, hit),
            None => hit,
        }
    })?;
    let terms = builder.map(domain, [x, &target, &class, &chosen], work, |[x, target, class, weight]| {
        let other = match ignored {
            Some(ignored) => target.with(Binary::Equal, ignored as f64),
            None => target.with(Binary::Less, 0.0),
        };
        let hit = target.with(Binary::Equal, class);
        let term = x * weight * -1.0;
        other.select(0.0, hit.select(term, 0.0))
    })?;
    let result = match operator.string("reduction", "mean")? {
        "none" => {
            let places = [&x.dims()[..1], &x.dims()[2..]].concat();
            builder.reduced(&terms, ReduceKind::Sum, &[1])?.reshaped(places)?
        }
        "sum" => total(builder, &terms)?,
        "mean" => {
            let (sum, weights) = (total(builder, &terms)?, total(builder, &chosen)?);
            builder.map(domain, [&sum, &weights], work, |[sum, weights]| sum / weights)?
        }
        other => return Err(Fault::attribute("reduction", other, "none, sum or mean")),
    };
    builder.cast(&result, x.dtype())
}

fn total(builder: &mut Builder, x: &View) -> Result<View, Fault> {
    let axes: Vec<_> = (0..x.rank()).collect();
    builder.reduced(x, ReduceKind::Sum, &axes)?.reshaped(vec![])
}
