//! Linear models: products with the coefficients of each class or target.

use super::super::{Builder, Entry, Fault, Operator, View, domain_of, multiplied};
use super::ensemble::{exceeds, greatest};
use super::labels::Labels;
use super::post::{Transform, paired};
use super::{constant, floats, require_length, rows, work_type};
use anabranch_kernels::DType;

pub(super) const TABLE: &[Entry] = &[("LinearClassifier", classifier), ("LinearRegressor", regressor)];

/// Returns `x · coefficientsᵀ + offset` as `f32`, with coefficients `[offset.len(), features]`, and an offset for each
/// row of them.
pub(super) fn scored(
    builder: &mut Builder,
    x: &View,
    coefficients: &[f32],
    offset: &[f32],
    work: DType,
) -> Result<View, Fault> {
    let (count, features) = (offset.len(), x.dims()[1]);
    require_length("coefficients", coefficients.len(), count.saturating_mul(features))?;
    // The product needs a matrix whose columns are the classes.
    let mut columns = vec![0.0; coefficients.len()];
    for (at, coefficient) in coefficients.iter().enumerate() {
        columns[at % features * count + at / features] = *coefficient;
    }
    let columns = constant(builder, &[features, count], &columns)?;
    let columns = builder.cast(&columns, work)?;
    let x = builder.cast(x, work)?;
    let product = multiplied(builder, &x, &columns)?;
    let offset = constant(builder, &[count], offset)?;
    builder.map(domain_of(work), [&product, &offset], DType::F32, |[x, offset]| x + offset)
}

/// Returns the label of the best class, and all scores.
fn classifier(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = rows(operator)?;
    let labels = Labels::read(operator, "classlabels_ints")?;
    let transform = Transform::named(operator)?;
    let offset = floats(operator, "intercepts")?;
    if offset.is_empty() {
        return Err(Fault::invalid("attribute `intercepts` is empty; give one entry per row of coefficients"));
    }
    let scores = scored(builder, &x, floats(operator, "coefficients")?, offset, work_type(x.dtype()))?;
    if offset.len() > 1 {
        require_length("intercepts", offset.len(), labels.count())?;
        let best = greatest(builder, &scores)?;
        let label = labels.of(operator, builder, &best)?;
        return Ok(vec![label, transform.of_scores(builder, &scores)?]);
    }
    let index = exceeds(builder, &scores, 0.0)?;
    let scores = match labels.count() {
        2 if transform == Transform::None => paired(builder, &scores, 1.0)?,
        2 => return Err(Fault::unsupported("a post_transform of one row of coefficients for two classes")),
        1 => transform.of_scores(builder, &scores)?,
        count => return Err(Fault::invalid(format!("one row of coefficients for {count} classes"))),
    };
    Ok(vec![labels.of(operator, builder, &index)?, scores])
}

/// Returns `[rows, targets]`.
fn regressor(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = rows(operator)?;
    let targets = operator.size("targets", 1, 1)?;
    let transform = Transform::named(operator)?;
    let coefficients = floats(operator, "coefficients")?;
    if targets > coefficients.len() {
        return Err(Fault::attribute("targets", targets, "at most the number of coefficients"));
    }
    let offset = match floats(operator, "intercepts")? {
        [] => vec![0.0; targets],
        offset => offset.to_vec(),
    };
    require_length("intercepts", offset.len(), targets)?;
    let scores = scored(builder, &x, coefficients, &offset, work_type(x.dtype()))?;
    Ok(vec![transform.of_scores(builder, &scores)?])
}
