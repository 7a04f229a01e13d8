//! Losses over classes, which stand along axis 1: the addends are those of the target's class.

use super::softmax::normalized;
use super::{Builder, Entry, Fault, Operator, View, domain_of, gather, working};
use anabranch_kernels::op::{Binary, Domain, Gather, Op, ReduceKind};
use anabranch_kernels::{DType, TensorSpec};

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
    let classes = x.dims()[1];
    if classes == 0 && target.elements() > 0 {
        return Err(Fault::invalid(format!("an input of shape {} has no classes", x.shape())));
    }
    let mut dims = x.dims().to_vec();
    dims[1] = 1;
    let target = target.reshaped(dims)?;
    let (domain, work) = (domain_of(x.dtype()), working(x.dtype()));
    let ignored = operator.node.int("ignore_index")?;
    let counted = builder.map(Domain::I64, [&target], DType::Bool, |[target]| match ignored {
        Some(ignored) => target.with(Binary::Equal, ignored as f64).select(0.0, 1.0),
        None => target.with(Binary::Equal, target),
    })?;
    // The run refuses a target that is no class: a negative one would count from the last class.
    let class = builder.map(Domain::I64, [&target], DType::I64, |[target]| {
        let class = target.with(Binary::Less, 0.0).select(classes as f64, target);
        match ignored {
            Some(ignored) => target.with(Binary::Equal, ignored as f64).select(0.0, class),
            None => class,
        }
    })?;
    let op = Op::Gather(Gather { axis: 1, elementwise: true });
    let output = TensorSpec::new(x.dtype(), class.shape().clone());
    let chosen = builder.emit_one(op, &[x.clone(), class.clone()], output)?;
    let weight = match operator.optional(2) {
        Some(_) => {
            let weight = operator.typed(2, x.dtype())?;
            if *weight.dims() != [classes] {
                return Err(Fault::invalid(format!("weights of shape {} for {classes} classes", weight.shape())));
            }
            gather::chosen(builder, weight, &class, 0, class.dims().to_vec())?
        }
        None => builder.scalar(x.dtype(), 1.0)?,
    };
    let terms = builder.map(domain, [&chosen, &counted, &weight], work, |[x, counted, weight]| {
        let term = x * weight * -1.0;
        counted.select(term, 0.0)
    })?;
    let result = match operator.string("reduction", "mean")? {
        "none" => {
            let places = [&x.dims()[..1], &x.dims()[2..]].concat();
            terms.reshaped(places)?
        }
        "sum" => total(builder, &terms)?,
        "mean" => {
            let weights =
                builder.map(domain, [&counted, &weight], work, |[counted, weight]| counted.select(weight, 0.0))?;
            let (sum, weights) = (total(builder, &terms)?, total(builder, &weights)?);
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
