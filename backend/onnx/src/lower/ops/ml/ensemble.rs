//! Ensembles of decision trees: the regressor and the classifier of all versions, and version 5's operator for both.

use super::super::{Builder, Entry, Fault, Operator, View};
use super::forest::{Forest, Test};
use super::labels::Labels;
use super::post::{Transform, paired};
use super::{floats_or_tensor, ints, numbers, require_length, rows, work_type};
use anabranch_kernels::DType;
use anabranch_kernels::op::{ArgReduce, Binary, TreeAggregate};
use std::collections::HashMap;

pub(super) const TABLE: &[Entry] =
    &[("TreeEnsembleRegressor", regressor), ("TreeEnsembleClassifier", classifier), ("TreeEnsemble", ensemble)];

/// Trees listed node by node, each under the numbers of its tree and its own.
struct Listed {
    forest: Forest,
    roots: Vec<usize>,
    /// Numbers of each node: its tree's and its own.
    ids: Vec<(i64, i64)>,
    /// Whether each target has a weight in any leaf.
    weighted: Vec<bool>,
    all_positive: bool,
}

impl Listed {
    /// Reads trees whose leaves' weights are in attributes that start with `of`, for this many targets.
    fn read(operator: &Operator<'_>, x: &View, of: &str, targets: usize) -> Result<Self, Fault> {
        let (values, wide) = floats_or_tensor(operator, "nodes_values")?;
        let dtype = if wide { DType::F64 } else { work_type(x.dtype()) };
        let list = |name: &'static str| ints(operator, name);
        let (trees, nodes, features) = (list("nodes_treeids")?, list("nodes_nodeids")?, list("nodes_featureids")?);
        let (yes, no) = (list("nodes_truenodeids")?, list("nodes_falsenodeids")?);
        let missing = list("nodes_missing_value_tracks_true")?;
        let modes = operator.node.strings("nodes_modes")?.unwrap_or_default();
        let count = nodes.len();
        let lengths = [
            ("nodes_treeids", trees.len()),
            ("nodes_featureids", features.len()),
            ("nodes_truenodeids", yes.len()),
            ("nodes_falsenodeids", no.len()),
            ("nodes_modes", modes.len()),
            ("nodes_values", values.len()),
        ];
        lengths.into_iter().try_for_each(|(name, length)| require_length(name, length, count))?;
        if !missing.is_empty() {
            require_length("nodes_missing_value_tracks_true", missing.len(), count)?;
        }
        if count == 0 {
            return Err(Fault::invalid("it has no tree"));
        }
        let ids: Vec<(i64, i64)> = trees.iter().copied().zip(nodes.iter().copied()).collect();
        let mut places = HashMap::with_capacity(count);
        for (at, id) in ids.iter().enumerate() {
            if places.insert(*id, at).is_some() {
                return Err(Fault::invalid(format!("{} is listed twice", called(*id))));
            }
        }
        let entries = Entries::read(operator, of, targets, &places)?;
        let mut forest = Forest::new(dtype, x.dims()[1], count);
        for at in 0..count {
            let wrong = |problem: String| Fault::invalid(format!("{}: {problem}", called(ids[at])));
            let Some(test) = test(modes[at], values[at]).map_err(wrong)? else {
                forest.leaf(at, entries.of(at));
                continue;
            };
            let side = |node: i64| {
                let place = places.get(&(trees[at], node)).copied();
                place.ok_or_else(|| wrong(format!("it leads to node {node}, which is not in its tree")))
            };
            let sides = [side(yes[at])?, side(no[at])?];
            let missing = missing.get(at).is_some_and(|missing| *missing != 0);
            forest.branch(at, features[at], test, missing, sides).map_err(|fault| wrong(fault.to_string()))?;
        }
        let mut seen = std::collections::HashSet::new();
        let roots = (0..count).filter(|at| seen.insert(trees[*at])).collect();
        let (weighted, all_positive) = (entries.weighted, entries.all_positive);
        Ok(Self { forest, roots, ids, weighted, all_positive })
    }

    fn scores(self, builder: &mut Builder, x: &View, aggregate: TreeAggregate, base: &[f64]) -> Result<View, Fault> {
        let name = |at: usize| self.ids.get(at).map_or_else(|| "a node".to_owned(), |id| called(*id));
        self.forest.emit(builder, x, &self.roots, (aggregate, base, DType::F32), name)
    }
}

fn called((tree, node): (i64, i64)) -> String {
    format!("node {node} of tree {tree}")
}

/// Returns the comparison of a node, or `None` for a leaf.
fn test(mode: &str, value: f64) -> Result<Option<Test<'static>>, String> {
    Ok(Some(match mode {
        "BRANCH_LEQ" => Test::LessOrEqual(value),
        "BRANCH_LT" => Test::Less(value),
        "BRANCH_GTE" => Test::GreaterOrEqual(value),
        "BRANCH_GT" => Test::Greater(value),
        "BRANCH_EQ" => Test::Equal(value),
        "BRANCH_NEQ" => Test::NotEqual(value),
        "LEAF" => return Ok(None),
        other => return Err(format!("its mode {other:?} is not defined by ONNX")),
    }))
}

/// Weights of the leaves, by node.
struct Entries {
    /// Targets and weights; those of a node are adjacent.
    all: Vec<(u32, f64)>,
    /// Position of each node's first weight, and the end of the last.
    starts: Vec<usize>,
    weighted: Vec<bool>,
    all_positive: bool,
}

impl Entries {
    fn read(
        operator: &Operator<'_>,
        of: &str,
        targets: usize,
        places: &HashMap<(i64, i64), usize>,
    ) -> Result<Self, Fault> {
        let name = |what: &str| format!("{of}_{what}");
        let (ids, nodes) = (ints(operator, &name("ids"))?, ints(operator, &name("nodeids"))?);
        let (trees, (weights, _)) = (ints(operator, &name("treeids"))?, floats_or_tensor(operator, &name("weights"))?);
        for (what, length) in [("nodeids", nodes.len()), ("treeids", trees.len()), ("weights", weights.len())] {
            require_length(&name(what), length, ids.len())?;
        }
        let mut place = Vec::with_capacity(ids.len());
        for (at, id) in ids.iter().enumerate() {
            if usize::try_from(*id).map_or(true, |id| id >= targets) {
                return Err(Fault::attribute(&name("ids"), id, format!("at least 0 and below {targets}")));
            }
            let node = (trees[at], nodes[at]);
            let found = places.get(&node);
            place.push(*found.ok_or_else(|| {
                Fault::invalid(format!("a weight belongs to {}, which does not exist", called(node)))
            })?);
        }
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by_key(|at| place[*at]);
        let mut starts = vec![0; places.len() + 1];
        place.iter().for_each(|node| starts[node + 1] += 1);
        (1..starts.len()).for_each(|at| starts[at] += starts[at - 1]);
        let mut weighted = vec![false; targets];
        ids.iter().for_each(|id| weighted[*id as usize] = true);
        let all_positive = weights.iter().all(|weight| *weight >= 0.0);
        let all = order.into_iter().map(|at| (ids[at] as u32, weights[at])).collect();
        Ok(Self { all, starts, weighted, all_positive })
    }

    fn of(&self, node: usize) -> impl Iterator<Item = (u32, f64)> {
        self.all[self.starts[node]..self.starts[node + 1]].iter().copied()
    }
}

/// Returns `[rows, n_targets]`.
fn regressor(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = rows(operator)?;
    let targets = afforded(builder, operator.size("n_targets", 1, 1)?)?;
    let transform = Transform::named(operator)?;
    let aggregate = match operator.string("aggregate_function", "SUM")? {
        "AVERAGE" => TreeAggregate::Average,
        "SUM" => TreeAggregate::Sum,
        "MIN" => TreeAggregate::Min,
        "MAX" => TreeAggregate::Max,
        other => return Err(Fault::attribute("aggregate_function", other, "AVERAGE, SUM, MIN or MAX")),
    };
    let base = base_values(operator, targets, &[0, targets])?;
    let trees = Listed::read(operator, &x, "target", targets)?;
    let base = if base.is_empty() { vec![0.0; targets] } else { base };
    let scores = trees.scores(builder, &x, aggregate, &base)?;
    Ok(vec![transform.of_scores(builder, &scores)?])
}

/// Returns the attribute `base_values`, which must have one of these lengths.
fn base_values(operator: &Operator<'_>, targets: usize, lengths: &[usize]) -> Result<Vec<f64>, Fault> {
    let (base, _) = floats_or_tensor(operator, "base_values")?;
    match lengths.contains(&base.len()) {
        true => Ok(base),
        false => {
            Err(Fault::invalid(format!("attribute `base_values` has {} entries for {targets} scores", base.len())))
        }
    }
}

/// Checks that constants may take a number for each of the targets, whose number a file gives.
fn afforded(builder: &Builder, targets: usize) -> Result<usize, Fault> {
    builder.afford(targets.saturating_mul(size_of::<f64>()))?;
    Ok(targets)
}

/// Returns the label of the best class, and all scores.
fn classifier(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = rows(operator)?;
    let labels = Labels::read(operator, "classlabels_int64s")?;
    let transform = Transform::named(operator)?;
    let count = labels.count();
    let lengths: &[usize] = if count == 2 { &[0, 1, 2] } else { &[0, count] };
    let base = base_values(operator, count, lengths)?;
    let trees = Listed::read(operator, &x, "class", count)?;
    let (label, scores) = match count {
        1 => single(builder, &x, trees, base, transform)?,
        2 => binary(builder, &x, trees, &base, transform)?,
        _ => multiple(builder, &x, trees, base, transform)?,
    };
    Ok(vec![labels.of(operator, builder, &label)?, scores])
}

/// Lowers a classifier of one class: the label says whether its score is positive.
fn single(
    builder: &mut Builder,
    x: &View,
    trees: Listed,
    mut base: Vec<f64>,
    transform: Transform,
) -> Result<(View, View), Fault> {
    base.resize(1, 0.0);
    let scores = trees.scores(builder, x, TreeAggregate::Sum, &base)?;
    let label = exceeds(builder, &scores, 0.0)?;
    Ok((label, transform.of_scores(builder, &scores)?))
}

/// Whether the only score of each row is greater than a bound, as the index of a class.
pub(super) fn exceeds(builder: &mut Builder, score: &View, bound: f64) -> Result<View, Fault> {
    let domain = super::super::domain_of(score.dtype());
    let index = builder.map(domain, [score], DType::I64, |[s]| s.with(Binary::Greater, bound))?;
    index.reshaped(vec![score.dims()[0]])
}

/// Returns the index of the greatest of the scores of each row.
pub(super) fn greatest(builder: &mut Builder, scores: &View) -> Result<View, Fault> {
    let op = ArgReduce { axis: 1, greatest: true, last: false };
    super::super::arg_reduce::index_of(builder, scores, op)?.reshaped(vec![scores.dims()[0]])
}

/// Lowers a classifier of two classes, whose trees hold weights of the first, of the second, or of both.
fn binary(
    builder: &mut Builder,
    x: &View,
    trees: Listed,
    base: &[f64],
    transform: Transform,
) -> Result<(View, View), Fault> {
    let (first, second) = (trees.weighted[0], trees.weighted[1]);
    let bound = if first != second && trees.all_positive { 0.5 } else { 0.0 };
    if !first && !second {
        return Err(Fault::invalid("no leaf has a weight"));
    }
    if second {
        // The standard does not define which base belongs to which score.
        if base.len() == 2 {
            return Err(Fault::unsupported("two base values for two classes with weights of the second"));
        }
        // A base without weights to add to is dropped.
        let base = [base.first().copied().filter(|_| first).unwrap_or(0.0), 0.0];
        let scores = trees.scores(builder, x, TreeAggregate::Sum, &base)?;
        let own = builder.part(&scores, 1, 1, 1)?;
        return Ok((exceeds(builder, &own, bound)?, transform.of_scores(builder, &scores)?));
    }
    if let &[own, other] = base {
        let scores = trees.scores(builder, x, TreeAggregate::Sum, &[own, other])?;
        let own = builder.part(&scores, 1, 0, 1)?;
        return Ok((exceeds(builder, &own, bound)?, transform.of_scores(builder, &scores)?));
    }
    if transform == Transform::Probit {
        return Err(Fault::unsupported("PROBIT of the one score of two classes"));
    }
    let all_positive = trees.all_positive;
    let score = trees.scores(builder, x, TreeAggregate::Sum, &[base.first().copied().unwrap_or(0.0)])?;
    let label = exceeds(builder, &score, bound)?;
    let pair = paired(builder, &score, if all_positive { 1.0 } else { 0.0 })?;
    match transform {
        Transform::Logistic if !all_positive => Ok((label, transform.of_scores(builder, &pair)?)),
        _ => Ok((label, pair)),
    }
}

/// Lowers a classifier of more classes: the label is the first class of the greatest score. The score of a class
/// without votes is its base, or 0.
fn multiple(
    builder: &mut Builder,
    x: &View,
    trees: Listed,
    mut base: Vec<f64>,
    transform: Transform,
) -> Result<(View, View), Fault> {
    let count = trees.weighted.len();
    base.resize(afforded(builder, count)?, 0.0);
    let scores = trees.scores(builder, x, TreeAggregate::Sum, &base)?;
    let label = greatest(builder, &scores)?;
    Ok((label, transform.of_scores(builder, &scores)?))
}

/// Lowers version 5: branches and leaves are numbered separately, and all numbers have the input's type.
fn ensemble(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let x = rows(operator)?;
    let transform = Transform::numbered(operator)?;
    let aggregate = match operator.int("aggregate_function", 1)? {
        0 => TreeAggregate::Average,
        1 => TreeAggregate::Sum,
        2 => TreeAggregate::Min,
        3 => TreeAggregate::Max,
        other => return Err(Fault::attribute("aggregate_function", other, "one of 0 to 3")),
    };
    let tensor = |name: &str| {
        let Some(tensor) = operator.node.tensor(name)? else { return Ok(None) };
        let elements = numbers(tensor).ok_or_else(|| Fault::attribute(name, tensor.dtype(), "of numbers"))?;
        Ok::<_, Fault>(Some((elements, tensor.dtype() == DType::F64)))
    };
    let needed = |name: &str| tensor(name)?.ok_or_else(|| Fault::invalid(format!("attribute `{name}` is missing")));
    let ((splits, wide), (modes, _), (weights, wide_weights)) =
        (needed("nodes_splits")?, needed("nodes_modes")?, needed("leaf_weights")?);
    let members = tensor("membership_values")?.map(|(members, _)| members).unwrap_or_default();
    let list = |name: &'static str| ints(operator, name);
    let (features, leaf_targets) = (list("nodes_featureids")?, list("leaf_targetids")?);
    let sides = [
        (list("nodes_truenodeids")?, list("nodes_trueleafs")?),
        (list("nodes_falsenodeids")?, list("nodes_falseleafs")?),
    ];
    let missing = list("nodes_missing_value_tracks_true")?;
    let (count, leaves) = (features.len(), weights.len());
    let lengths = [
        ("nodes_splits", splits.len()),
        ("nodes_modes", modes.len()),
        ("nodes_truenodeids", sides[0].0.len()),
        ("nodes_trueleafs", sides[0].1.len()),
        ("nodes_falsenodeids", sides[1].0.len()),
        ("nodes_falseleafs", sides[1].1.len()),
    ];
    lengths.into_iter().try_for_each(|(name, length)| require_length(name, length, count))?;
    require_length("leaf_targetids", leaf_targets.len(), leaves)?;
    if !missing.is_empty() {
        require_length("nodes_missing_value_tracks_true", missing.len(), count)?;
    }
    let last = leaf_targets.iter().copied().max().unwrap_or(0).max(0);
    let targets = operator.size("n_targets", 1, (last as usize).saturating_add(1))?;
    let dtype = if wide || wide_weights { DType::F64 } else { work_type(x.dtype()) };
    // The leaves follow the branches.
    let mut forest = Forest::new(dtype, x.dims()[1], count + leaves);
    for (leaf, (target, weight)) in leaf_targets.iter().zip(&weights).enumerate() {
        let target = u32::try_from(*target).ok().filter(|target| (*target as usize) < targets);
        let allowed =
            || Fault::attribute("leaf_targetids", leaf_targets[leaf], format!("at least 0 and below {targets}"));
        forest.leaf(count + leaf, [(target.ok_or_else(allowed)?, *weight)]);
    }
    let mut sets = members.split(|member| member.is_nan());
    for at in 0..count {
        let wrong = |problem: String| Fault::invalid(format!("node {at}: {problem}"));
        let side = |(nodes, leafs): (&[i64], &[i64])| {
            let (of, first) = if leafs[at] != 0 { (leaves, count) } else { (count, 0) };
            let place = usize::try_from(nodes[at]).ok().filter(|place| *place < of).map(|place| first + place);
            let what = if leafs[at] != 0 { "leaf" } else { "node" };
            place.ok_or_else(|| wrong(format!("it leads to {what} {}, but there are {of}", nodes[at])))
        };
        let test = match modes[at] {
            0.0 => Test::LessOrEqual(splits[at]),
            1.0 => Test::Less(splits[at]),
            2.0 => Test::GreaterOrEqual(splits[at]),
            3.0 => Test::Greater(splits[at]),
            4.0 => Test::Equal(splits[at]),
            5.0 => Test::NotEqual(splits[at]),
            6.0 => Test::Member(sets.next().ok_or_else(|| wrong("it has no set in `membership_values`".into()))?),
            other => return Err(wrong(format!("its mode {other} is outside of 0 to 6"))),
        };
        let missing = missing.get(at).is_some_and(|missing| *missing != 0);
        let sides = [side(sides[0])?, side(sides[1])?];
        forest.branch(at, features[at], test, missing, sides).map_err(|fault| wrong(fault.to_string()))?;
    }
    let roots: Vec<usize> =
        list("tree_roots")?.iter().map(|root| usize::try_from(*root).unwrap_or(usize::MAX)).collect();
    if roots.is_empty() {
        return Err(Fault::invalid("it has no tree"));
    }
    if let Some(root) = roots.iter().find(|root| **root >= count) {
        return Err(Fault::attribute("tree_roots", *root as i64, format!("at least 0 and below {count}")));
    }
    let base = vec![0.0; afforded(builder, targets)?];
    let work = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let scores = forest.emit(builder, &x, &roots, (aggregate, &base, work), |at| format!("node {at}"))?;
    let scores = transform.of_scores(builder, &scores)?;
    Ok(vec![builder.cast(&scores, x.dtype())?])
}
