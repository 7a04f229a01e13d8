//! Support vector machines, in `f64`: kernels with all support vectors as products and maps, and sums of them for each
//! pair of classes.

use super::super::{Builder, Entry, Fault, Operator, View, multiplied};
use super::ensemble::greatest;
use super::labels::Labels;
use super::linear::scored;
use super::post::{Transform, paired};
use super::{constant, floats, ints, require_length, rows};
use anabranch_kernels::DType;
use anabranch_kernels::op::{Binary, Domain, ReduceKind, Unary};

pub(super) const TABLE: &[Entry] = &[("SVMClassifier", classifier), ("SVMRegressor", regressor)];

/// A measure of the similarity of a row and a support vector.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kernel {
    Linear,
    Polynomial { gamma: f64, offset: f64, degree: f64 },
    Radial { gamma: f64 },
    Sigmoid { gamma: f64, offset: f64 },
}

impl Kernel {
    fn read(operator: &Operator<'_>) -> Result<Self, Fault> {
        let parameters: Vec<f64> = floats(operator, "kernel_params")?.iter().map(|p| f64::from(*p)).collect();
        let (gamma, offset, degree) = match parameters[..] {
            [] => (0.0, 0.0, 0.0),
            [gamma, offset, degree] => (gamma, offset, degree),
            _ => return Err(Fault::attribute("kernel_params", parameters, "three numbers")),
        };
        Ok(match operator.string("kernel_type", "LINEAR")? {
            "LINEAR" => Self::Linear,
            "POLY" => Self::Polynomial { gamma, offset, degree },
            "RBF" => Self::Radial { gamma },
            "SIGMOID" => Self::Sigmoid { gamma, offset },
            other => return Err(Fault::attribute("kernel_type", other, "LINEAR, POLY, RBF or SIGMOID")),
        })
    }

    /// Returns `[rows, vectors]` for rows `[rows, features]` and these vectors.
    fn of(self, builder: &mut Builder, x: &View, vectors: &[f32], count: usize) -> Result<View, Fault> {
        let features = x.dims()[1];
        require_length("support_vectors", vectors.len(), count.saturating_mul(features))?;
        // Distances are differences of squares: next to a large offset common to all vectors, small distances would be
        // lost.
        let middle = if matches!(self, Self::Radial { .. }) { means(vectors, features) } else { vec![0.0; features] };
        let mut columns = vec![0.0; vectors.len()];
        let mut squares = vec![0.0; count];
        for (at, number) in vectors.iter().enumerate() {
            let (vector, feature, number) = (at / features, at % features, f64::from(*number) - middle[at % features]);
            columns[feature * count + vector] = number;
            squares[vector] += number * number;
        }
        let columns = constant(builder, &[features, count], &columns)?;
        let (domain, dtype) = (Domain::F64, DType::F64);
        let x = match self {
            Self::Radial { .. } => {
                let middle = constant(builder, &[features], &middle)?;
                builder.map(domain, [x, &middle], dtype, |[x, middle]| x - middle)?
            }
            _ => x.clone(),
        };
        let product = multiplied(builder, &x, &columns)?;
        match self {
            Self::Linear => Ok(product),
            Self::Polynomial { gamma, offset, degree } => {
                builder.map(domain, [&product], dtype, |[x]| (x * gamma + offset).with(Binary::Power, degree))
            }
            Self::Sigmoid { gamma, offset } => {
                builder.map(domain, [&product], dtype, |[x]| (x * gamma + offset).apply(Unary::Tanh))
            }
            Self::Radial { gamma } => {
                let own = builder.map(domain, [&x], dtype, |[x]| x * x)?;
                let own = builder.reduced(&own, ReduceKind::Sum, &[1])?;
                let squares = constant(builder, &[count], &squares)?;
                builder.map(domain, [&product, &own, &squares], dtype, |[product, own, square]| {
                    let distance = own + square - product * 2.0;
                    (distance.with(Binary::Max, 0.0) * -gamma).apply(Unary::Exp)
                })
            }
        }
    }
}

/// Mean of each feature of vectors.
fn means(vectors: &[f32], features: usize) -> Vec<f64> {
    let mut sums = vec![0.0; features];
    vectors.iter().enumerate().for_each(|(at, number)| sums[at % features] += f64::from(*number));
    let count = (vectors.len() / features).max(1) as f64;
    sums.into_iter().map(|sum| sum / count).collect()
}

/// Returns `[rows, 1]`.
fn regressor(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = rows(operator)?;
    let kernel = Kernel::read(operator)?;
    let (coefficients, rho) = (floats(operator, "coefficients")?, floats(operator, "rho")?);
    let count = operator.size("n_supports", 0, 0)?;
    if Transform::named(operator)? != Transform::None {
        return Err(Fault::unsupported("a post_transform of one score, which ONNX Runtime does not apply"));
    }
    require_length("rho", rho.len(), 1)?;
    let x = builder.cast(&x, DType::F64)?;
    let score = if count == 0 {
        scored(builder, &x, coefficients, rho, DType::F64)?
    } else {
        let common = kernel.of(builder, &x, floats(operator, "support_vectors")?, count)?;
        scored(builder, &common, coefficients, rho, DType::F64)?
    };
    if !operator.flag("one_class", false)? {
        return Ok(vec![score]);
    }
    Ok(vec![builder.map(Domain::F32, [&score], DType::F32, |[s]| s.with(Binary::Greater, 0.0).select(1.0, -1.0))?])
}

/// Returns the label of the best class, and the scores of classes or of pairs of classes.
fn classifier(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = rows(operator)?;
    let labels = Labels::read(operator, "classlabels_ints")?;
    let transform = Transform::named(operator)?;
    let per_class = ints(operator, "vectors_per_class")?;
    let x = builder.cast(&x, DType::F64)?;
    let (index, scores) = match per_class.iter().any(|count| *count != 0) {
        false => linear(operator, builder, &x, labels.count(), transform)?,
        true => pairwise(operator, builder, &x, labels.count(), transform)?,
    };
    Ok(vec![labels.of(operator, builder, &index)?, scores])
}

/// Lowers a classifier without support vectors: a product with the coefficients of each class.
fn linear(
    operator: &Operator<'_>,
    builder: &mut Builder,
    x: &View,
    classes: usize,
    transform: Transform,
) -> Result<(View, View), Fault> {
    let coefficients = floats(operator, "coefficients")?;
    let Some(rho) = floats(operator, "rho")?.first() else { return Err(Fault::invalid("attribute `rho` is empty")) };
    if classes > coefficients.len() {
        return Err(Fault::invalid(format!("{} coefficients of {classes} classes", coefficients.len())));
    }
    let scores = scored(builder, x, coefficients, &vec![*rho; classes], DType::F64)?;
    let best = greatest(builder, &scores)?;
    let index = if classes == 2 {
        // The second class wins as soon as any score passes the bound.
        let (positive, most) =
            (coefficients.iter().all(|c| *c >= 0.0), builder.reduced(&scores, ReduceKind::Max, &[1])?);
        let most = most.reshaped(best.dims())?;
        builder.map(Domain::F32, [&most, &best], DType::I64, |[most, best]| {
            let passes = match positive {
                true => most.with(Binary::GreaterOrEqual, 0.5),
                false => most.with(Binary::Greater, 0.0),
            };
            passes.select(1.0, best)
        })?
    } else {
        best
    };
    Ok((index, transform.of_scores(builder, &scores)?))
}

/// Lowers a classifier with support vectors: one decision for each pair of classes, each of which is a vote.
fn pairwise(
    operator: &Operator<'_>,
    builder: &mut Builder,
    x: &View,
    classes: usize,
    transform: Transform,
) -> Result<(View, View), Fault> {
    let per_class = ints(operator, "vectors_per_class")?;
    require_length("vectors_per_class", per_class.len(), classes)?;
    if !floats(operator, "prob_a")?.is_empty() || !floats(operator, "prob_b")?.is_empty() {
        return Err(Fault::unsupported("probabilities by coupling pairs of classes (prob_a)"));
    }
    let vectors = floats(operator, "support_vectors")?;
    let (mut starts, mut count) = (Vec::with_capacity(classes), 0usize);
    for own in per_class {
        let own = usize::try_from(*own).ok().filter(|own| *own <= vectors.len());
        starts.push(count);
        count += own.ok_or_else(|| Fault::attribute("vectors_per_class", per_class, "the vectors of each class"))?;
    }
    starts.push(count);
    let (coefficients, rho) = (floats(operator, "coefficients")?, floats(operator, "rho")?);
    require_length("coefficients", coefficients.len(), count.saturating_mul(classes - 1))?;
    let pairs: Vec<(usize, usize)> = match classes.saturating_mul(classes) / 2 <= rho.len().saturating_add(classes) {
        true => (0..classes).flat_map(|i| (i + 1..classes).map(move |j| (i, j))).collect(),
        false => {
            return Err(Fault::invalid(format!("attribute `rho` has {} entries for {classes} classes", rho.len())));
        }
    };
    require_length("rho", rho.len(), pairs.len())?;
    if pairs.is_empty() {
        return Err(Fault::invalid("a single class"));
    }
    let common = Kernel::read(operator)?.of(builder, x, vectors, count)?;
    builder.afford(count.saturating_mul(pairs.len()).saturating_mul(4))?;
    // Row p: the coefficients of the vectors of both classes of pair p, and 0 for other vectors.
    let mut weights = vec![0.0; count * pairs.len()];
    for (row, (i, j)) in weights.chunks_exact_mut(count).zip(&pairs) {
        for (class, from) in [(*i, j - 1), (*j, *i)] {
            let own = starts[class]..starts[class + 1];
            row[own.clone()].copy_from_slice(&coefficients[from * count..][own]);
        }
    }
    let decisions = scored(builder, &common, &weights, rho, DType::F64)?;
    let index = most_voted(builder, &decisions, &pairs, classes)?;
    let scores = match (classes, transform) {
        (2, Transform::None) => paired(builder, &decisions, 0.0)?,
        (2, Transform::Probit) => return Err(Fault::unsupported("PROBIT of the one score of two classes")),
        (2, _) => paired(builder, &decisions, 1.0)?,
        _ => transform.of_scores(builder, &decisions)?,
    };
    Ok((index, scores))
}

/// Returns the class that wins most of its pairs; the first of several.
fn most_voted(
    builder: &mut Builder,
    decisions: &View,
    pairs: &[(usize, usize)],
    classes: usize,
) -> Result<View, Fault> {
    builder.afford(pairs.len().saturating_mul(classes).saturating_mul(4))?;
    let (mut gains, mut certain) = (vec![0f32; pairs.len() * classes], vec![0f32; classes]);
    for (row, (i, j)) in gains.chunks_exact_mut(classes).zip(pairs) {
        (row[*i], row[*j]) = (1.0, -1.0);
        certain[*j] += 1.0;
    }
    let won = builder.map(Domain::F32, [decisions], DType::F32, |[s]| s.with(Binary::Greater, 0.0))?;
    let (gains, certain) =
        (constant(builder, &[pairs.len(), classes], &gains)?, constant(builder, &[classes], &certain)?);
    let votes = multiplied(builder, &won, &gains)?;
    let votes = builder.map(Domain::F32, [&votes, &certain], DType::F32, |[votes, certain]| votes + certain)?;
    greatest(builder, &votes)
}
