//! Forests compared with the definition of a tree, applied row by row.

use crate::testing::{computed, node, run, shape, tensor};
use anabranch_op::op::{Op, TreeAggregate, TreeNode, Trees};
use anabranch_op::{DType, Tensor};
use arbtest::arbitrary::{Result, Unstructured};

/// Tree as it is defined.
enum Tree {
    Leaf(Vec<(u32, f64)>),
    Branch { feature: usize, threshold: f64, missing_right: bool, sides: Box<[Tree; 2]> },
}

impl Tree {
    fn random(u: &mut Unstructured<'_>, features: usize, targets: u32, depth: usize) -> Result<Self> {
        if depth == 0 || u.ratio(1, 5)? {
            let weight = |u: &mut Unstructured<'_>| {
                Ok((u.int_in_range(0..=targets - 1)?, f64::from(u.int_in_range(-9i8..=9)?) / 4.0))
            };
            return Ok(Self::Leaf((0..u.int_in_range(0..=2)?).map(|_| weight(u)).collect::<Result<_>>()?));
        }
        let mut side = || Self::random(u, features, targets, depth - 1);
        let sides = Box::new([side()?, side()?]);
        let threshold = number(u)?;
        Ok(Self::Branch { feature: u.choose_index(features)?, threshold, missing_right: u.arbitrary()?, sides })
    }

    fn leaf(&self, row: &[f64]) -> &[(u32, f64)] {
        match self {
            Self::Leaf(weights) => weights,
            Self::Branch { feature, threshold, missing_right, sides } => {
                let value = row[*feature];
                let right = if value.is_nan() { *missing_right } else { value > *threshold };
                sides[usize::from(right)].leaf(row)
            }
        }
    }

    fn depth(&self) -> u32 {
        match self {
            Self::Leaf(_) => 0,
            Self::Branch { sides, .. } => 1 + sides[0].depth().max(sides[1].depth()),
        }
    }
}

fn number(u: &mut Unstructured<'_>) -> Result<f64> {
    Ok(match u.int_in_range(0..=15)? {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        3 => -0.0,
        _ => f64::from(u.int_in_range(-6i8..=6)?) / 2.0,
    })
}

/// Constants of the op.
#[derive(Default)]
struct Flat {
    nodes: Vec<[u32; 4]>,
    roots: Vec<[u32; 2]>,
    targets: Vec<u32>,
    weights: Vec<f64>,
}

impl Flat {
    fn of(trees: &[Tree], dtype: DType) -> Self {
        let mut flat = Self::default();
        for tree in trees {
            let root = flat.nodes.len();
            flat.nodes.push([0; 4]);
            flat.roots.push([root as u32, tree.depth()]);
            flat.place(tree, root, dtype);
        }
        flat
    }

    fn place(&mut self, tree: &Tree, at: usize, dtype: DType) {
        let node = match tree {
            Tree::Leaf(weights) => {
                let entry = if weights.is_empty() { TreeNode::NO_ENTRY } else { self.targets.len() as u32 };
                self.targets.extend(weights.iter().map(|(target, _)| target));
                self.weights.extend(weights.iter().map(|(_, weight)| weight));
                if let (Some(last), false) = (self.targets.last_mut(), weights.is_empty()) {
                    *last |= TreeNode::LAST;
                }
                TreeNode::Leaf { entry }
            }
            Tree::Branch { feature, threshold, missing_right, sides } => {
                let left = self.nodes.len();
                self.nodes.extend([[0; 4]; 2]);
                self.place(&sides[0], left, dtype);
                self.place(&sides[1], left + 1, dtype);
                let (feature, left) = (*feature as u32, left as u32);
                TreeNode::Branch { feature, threshold: *threshold, missing_right: *missing_right, left }
            }
        };
        self.nodes[at] = node.words(dtype, at as u32);
    }

    fn inputs(&self, x: Tensor, base: &[f64]) -> [Tensor; 6] {
        let words = |dims: &[usize], words: &[u32]| Tensor::from_elements(shape(dims), words).expect("as many");
        let numbers = |numbers: &[f64]| Tensor::from_elements(shape(&[numbers.len()]), numbers).expect("as many");
        [
            x,
            words(&[self.nodes.len(), 4], self.nodes.as_flattened()),
            words(&[self.roots.len(), 2], self.roots.as_flattened()),
            words(&[self.targets.len()], &self.targets),
            numbers(&self.weights),
            numbers(base),
        ]
    }
}

/// Returns the scores of a row by the definition.
fn scores(trees: &[Tree], row: &[f64], base: &[f64], aggregate: TreeAggregate) -> Vec<f64> {
    let mut joined: Vec<Option<f64>> = vec![None; base.len()];
    for (target, weight) in trees.iter().flat_map(|tree| tree.leaf(row)) {
        let sum = &mut joined[*target as usize];
        *sum = Some(match (aggregate, *sum) {
            (_, None) => *weight,
            (TreeAggregate::Min, Some(sum)) => sum.min(*weight),
            (TreeAggregate::Max, Some(sum)) => sum.max(*weight),
            (_, Some(sum)) => sum + weight,
        });
    }
    let divisor = if aggregate == TreeAggregate::Average { trees.len() as f64 } else { 1.0 };
    joined.into_iter().zip(base).map(|(sum, base)| sum.unwrap_or(0.0) / divisor + base).collect()
}

#[test]
fn forests_score_as_their_trees_do() {
    let all = [TreeAggregate::Sum, TreeAggregate::Average, TreeAggregate::Min, TreeAggregate::Max];
    arbtest::arbtest(|u| {
        let (features, targets) = (u.int_in_range(1..=5)?, u.int_in_range(1..=3u32)?);
        let count = *u.choose(&[1, 3, 9, 40])?;
        let trees = (0..count).map(|_| Tree::random(u, features, targets, 6)).collect::<Result<Vec<_>>>()?;
        let rows = *u.choose(&[1, 2, 7, 8, 9, 17, 33])?;
        let some = (0..31 * features).map(|_| number(u)).collect::<Result<Vec<_>>>()?;
        let nan: bool = u.arbitrary()?;
        let value = |at: usize| if some[at % some.len()].is_nan() && !nan { 1.5 } else { some[at % some.len()] };
        let base: Vec<f64> = (0..targets).map(|target| f64::from(target) / 2.0).collect();
        let aggregate = *u.choose(&all)?;
        for dtype in [DType::F32, DType::F64] {
            let flat = Flat::of(&trees, dtype);
            let x = tensor(dtype, &[rows, features], value);
            let got: Vec<f64> =
                computed(Op::Trees(Trees { aggregate }), &flat.inputs(x, &base), &[rows, targets as usize]);
            for row in 0..rows {
                let values: Vec<f64> = (0..features).map(|feature| value(row * features + feature)).collect();
                let want = scores(&trees, &values, &base, aggregate);
                let got = &got[row * targets as usize..][..targets as usize];
                let near = got.iter().zip(&want).all(|(got, want)| (got - want).abs() <= 1e-12 * want.abs().max(1.0));
                assert!(near, "row {row} of {rows}, {dtype}, {aggregate:?}: {got:?}, not {want:?}");
            }
        }
        Ok(())
    })
    .budget_ms(600);
}

#[test]
fn many_rows_are_cut_into_blocks() {
    let branch = |feature, threshold, left: f64| Tree::Branch {
        feature,
        threshold,
        missing_right: false,
        sides: Box::new([Tree::Leaf(vec![(0, left)]), Tree::Leaf(vec![(0, 1.0)])]),
    };
    let trees: Vec<Tree> = (0..20).map(|tree| branch(tree % 3, tree as f64, -(tree as f64))).collect();
    for rows in [1000, 2500] {
        let value = |at: usize| (at * 7 % 23) as f64;
        let x = tensor(DType::F32, &[rows, 3], value);
        let op = Op::Trees(Trees { aggregate: TreeAggregate::Sum });
        let got: Vec<f32> = computed(op, &Flat::of(&trees, DType::F32).inputs(x, &[0.5]), &[rows, 1]);
        for (row, got) in got.iter().enumerate() {
            let values = [0, 1, 2].map(|feature| value(row * 3 + feature));
            assert_eq!(f64::from(*got), scores(&trees, &values, &[0.5], TreeAggregate::Sum)[0]);
        }
    }
}

#[test]
fn trees_that_lead_elsewhere_are_an_error() {
    let branch = |feature, left| TreeNode::Branch { feature, threshold: 0.0, missing_right: false, left };
    let leaf = |entry| TreeNode::Leaf { entry };
    let forests =
        [[branch(0, 7), leaf(0), leaf(0)], [branch(9, 1), leaf(0), leaf(0)], [branch(0, 1), leaf(5), leaf(5)]];
    for nodes in forests {
        let nodes = (0..).zip(nodes).map(|(at, node)| node.words(DType::F32, at)).collect();
        let (targets, weights) = (vec![TreeNode::LAST], vec![1.0]);
        let flat = Flat { nodes, roots: vec![[0, 1]], targets, weights };
        for rows in [1, 8] {
            let inputs = flat.inputs(tensor(DType::F32, &[rows, 2], |_| 1.0), &[0.0]);
            let spec = node(Op::Trees(Trees { aggregate: TreeAggregate::Sum }), &inputs, DType::F32, &[rows, 1]);
            assert!(run(&spec, &inputs).is_err());
        }
    }
}
