//! Trees as their operators describe them, and the flat form that the kernel reads.
//!
//! Every comparison becomes "greater than a threshold": `x < t` is `x ≤` the number before t, and membership in a set
//! is a search among the set's members and the numbers before them. The recursion here is at most as deep as the
//! logarithm of a set, because trees in a file may have any depth.

use super::super::{Builder, Fault, View};
use super::constant;
use anabranch_kernels::op::{Op, TreeAggregate, TreeNode, Trees};
use anabranch_kernels::{DType, Shape, TensorSpec};
use std::collections::VecDeque;

/// A comparison of a feature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Test<'a> {
    LessOrEqual(f64),
    Less(f64),
    GreaterOrEqual(f64),
    Greater(f64),
    Equal(f64),
    NotEqual(f64),
    Member(&'a [f64]),
}

/// A node of a directed acyclic graph, in which trees may share lower nodes.
#[derive(Clone, Copy, Debug)]
enum Node {
    /// The node is not described yet.
    Nowhere,
    Leaf {
        first: u32,
        count: u32,
    },
    /// Takes the second side if the feature is greater than the threshold, or NaN with `missing_right`.
    Branch {
        feature: u32,
        threshold: f64,
        missing_right: bool,
        sides: [usize; 2],
    },
}

/// Trees under construction, with thresholds of one type.
pub(super) struct Forest {
    dtype: DType,
    features: usize,
    nodes: Vec<Node>,
    /// Targets and weights of the leaves.
    entries: Vec<(u32, f64)>,
}

impl Forest {
    /// Creates `nodes` nodes, none of which is described yet, over this many features of this type (`f32` or `f64`).
    pub(super) fn new(dtype: DType, features: usize, nodes: usize) -> Self {
        Self { dtype, features, nodes: vec![Node::Nowhere; nodes], entries: Vec::new() }
    }

    /// Adds one more node.
    pub(super) fn node(&mut self) -> usize {
        self.nodes.push(Node::Nowhere);
        self.nodes.len() - 1
    }

    /// Makes a node a leaf of these targets and weights.
    pub(super) fn leaf(&mut self, at: usize, entries: impl IntoIterator<Item = (u32, f64)>) {
        let first = self.entries.len();
        self.entries.extend(entries);
        self.nodes[at] = Node::Leaf { first: first as u32, count: (self.entries.len() - first) as u32 };
    }

    /// Makes a node a branch to `sides`: for features that pass the test, and for features that do not.
    ///
    /// NaN passes the test if `missing` is set; it equals nothing.
    ///
    /// # Errors
    /// If there is no such feature.
    pub(super) fn branch(
        &mut self,
        at: usize,
        feature: i64,
        test: Test<'_>,
        missing: bool,
        sides: [usize; 2],
    ) -> Result<(), Fault> {
        let index = usize::try_from(feature).ok().filter(|index| *index < self.features.min(1 << 31));
        let [yes, no] = sides;
        let Some(index) = index else {
            return Err(Fault::invalid(format!(
                "it reads feature {feature}, but rows have {} features",
                self.features
            )));
        };
        let branch =
            |threshold, sides, missing_right| Node::Branch { feature: index as u32, threshold, missing_right, sides };
        // No number is greater than NaN.
        let never = branch(f64::NAN, [no, yes], missing);
        self.nodes[at] = match test {
            Test::LessOrEqual(t) if t.is_nan() => never,
            Test::LessOrEqual(t) => branch(t, [yes, no], !missing),
            Test::Less(t) if t.is_nan() || t == f64::NEG_INFINITY => never,
            Test::Less(t) => branch(self.before(t), [yes, no], !missing),
            Test::Greater(t) => branch(t, [no, yes], missing),
            Test::GreaterOrEqual(t) if t.is_nan() => never,
            Test::GreaterOrEqual(f64::NEG_INFINITY) => branch(f64::NAN, [yes, no], !missing),
            Test::GreaterOrEqual(t) => branch(self.before(t), [no, yes], missing),
            Test::Equal(t) => {
                let found = self.search(index as u32, &mut [(t, yes)], no);
                branch(f64::NAN, [found, if missing { yes } else { no }], true)
            }
            Test::NotEqual(t) => {
                let found = self.search(index as u32, &mut [(t, no)], yes);
                branch(f64::NAN, [found, yes], true)
            }
            Test::Member(set) => {
                let mut members: Vec<_> = set.iter().map(|member| (*member, yes)).collect();
                let found = self.search(index as u32, &mut members, no);
                branch(f64::NAN, [found, if missing { yes } else { no }], true)
            }
        };
        Ok(())
    }

    /// Makes a node a search for numbers, each with the node that it leads to, and a node for NaN.
    pub(super) fn lookup(&mut self, at: usize, keys: &mut [(f64, usize)], default: usize, missing: usize) {
        let found = self.search(0, keys, default);
        let sides = [found, missing];
        self.nodes[at] = Node::Branch { feature: 0, threshold: f64::NAN, missing_right: true, sides };
    }

    /// Returns a node from which a number leads to the node of the first equal key, or to the default.
    fn search(&mut self, feature: u32, keys: &mut [(f64, usize)], default: usize) -> usize {
        keys.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or_else(|| a.0.is_nan().cmp(&b.0.is_nan())));
        let mut cuts: Vec<f64> = Vec::with_capacity(2 * keys.len());
        let mut between = vec![default];
        for (key, node) in keys.iter().filter(|(key, _)| !key.is_nan()) {
            if cuts.last() == Some(key) {
                continue;
            }
            if *key == f64::NEG_INFINITY {
                between.pop();
            } else {
                cuts.push(self.before(*key));
            }
            cuts.push(*key);
            between.extend([*node, default]);
        }
        self.divide(feature, &cuts, &between)
    }

    /// Returns a node from which a number leads to the node of `between` at the number of cuts that it exceeds.
    fn divide(&mut self, feature: u32, cuts: &[f64], between: &[usize]) -> usize {
        if cuts.is_empty() {
            return between[0];
        }
        let middle = cuts.len() / 2;
        let left = self.divide(feature, &cuts[..middle], &between[..=middle]);
        let right = self.divide(feature, &cuts[middle + 1..], &between[middle + 1..]);
        let sides = [left, right];
        self.nodes.push(Node::Branch { feature, threshold: cuts[middle], missing_right: false, sides });
        self.nodes.len() - 1
    }

    /// Returns the next smaller number of the thresholds' type.
    fn before(&self, number: f64) -> f64 {
        match self.dtype {
            DType::F64 => number.next_down(),
            _ => f64::from((number as f32).next_down()),
        }
    }

    /// Returns the most steps from each node to a leaf, for nodes that can be reached from the roots.
    ///
    /// # Errors
    /// Returns the first node found that leads to itself.
    fn depths(&self, roots: &[usize]) -> Result<Vec<u32>, usize> {
        const OPEN: u32 = u32::MAX;
        const UNSEEN: u32 = u32::MAX - 1;
        let mut depths = vec![UNSEEN; self.nodes.len()];
        let mut path = Vec::new();
        for root in roots {
            path.push(*root);
            while let Some(at) = path.last().copied() {
                let Node::Branch { sides, .. } = self.nodes[at] else {
                    depths[at] = 0;
                    path.pop();
                    continue;
                };
                match depths[at] {
                    UNSEEN => {
                        depths[at] = OPEN;
                        if let Some(own) = sides.into_iter().find(|side| depths[*side] == OPEN) {
                            return Err(own);
                        }
                        path.extend(sides.into_iter().filter(|side| depths[*side] == UNSEEN));
                    }
                    OPEN => {
                        depths[at] = 1 + sides.map(|side| depths[side]).into_iter().max().unwrap_or(0);
                        path.pop();
                    }
                    _ => {
                        path.pop();
                    }
                }
            }
        }
        Ok(depths)
    }

    /// Returns the nodes' words, level by level of each tree, so that children are neighbours; shared nodes appear
    /// once.
    fn words(&self, roots: &[usize]) -> (Vec<[u32; 4]>, Vec<u32>) {
        let mut words: Vec<[u32; 4]> = Vec::with_capacity(self.nodes.len() + roots.len());
        let mut children: Vec<Option<u32>> = vec![None; self.nodes.len()];
        let mut firsts = Vec::with_capacity(roots.len());
        let mut open = VecDeque::new();
        for root in roots {
            firsts.push(words.len() as u32);
            open.push_back((*root, words.len()));
            words.push([0; 4]);
            while let Some((node, at)) = open.pop_front() {
                let node = match self.nodes[node] {
                    Node::Nowhere | Node::Leaf { count: 0, .. } => TreeNode::Leaf { entry: TreeNode::NO_ENTRY },
                    Node::Leaf { first, .. } => TreeNode::Leaf { entry: first },
                    Node::Branch { feature, threshold, missing_right, sides } => {
                        let left = *children[node].get_or_insert_with(|| {
                            let left = words.len();
                            words.extend([[0; 4]; 2]);
                            open.extend([(sides[0], left), (sides[1], left + 1)]);
                            left as u32
                        });
                        TreeNode::Branch { feature, threshold, missing_right, left }
                    }
                };
                words[at] = node.words(self.dtype, at as u32);
            }
        }
        (words, firsts)
    }

    /// Emits the scores of rows, of type `dtype`. `name` gives the name of a node in errors.
    ///
    /// # Errors
    ///
    /// If nodes lead to themselves, there are more nodes than words can number, or constants may not take as much. Also
    /// if trees share so many nodes that a row takes far more steps than there are nodes.
    pub(super) fn emit(
        mut self,
        builder: &mut Builder,
        x: &View,
        roots: &[usize],
        scores: (TreeAggregate, &[f64], DType),
        name: impl Fn(usize) -> String,
    ) -> Result<View, Fault> {
        let (aggregate, base, dtype) = scores;
        let count = self.nodes.len().saturating_mul(2).saturating_add(roots.len());
        if count.max(self.entries.len()) >= (1 << 31) {
            return Err(Fault::unsupported(format!("{} nodes, but fewer than 10⁹ are possible", self.nodes.len())));
        }
        builder.afford(count.saturating_mul(size_of::<[u32; 4]>()))?;
        let depths = self.depths(roots).map_err(|at| Fault::invalid(format!("{} leads to itself", name(at))))?;
        let steps: u64 = roots.iter().map(|root| u64::from(depths[*root])).sum();
        if steps > 16 * self.nodes.len().max(1 << 12) as u64 {
            let nodes = self.nodes.len();
            return Err(Fault::unsupported(format!(
                "{steps} steps per row through {nodes} nodes, as trees share nodes"
            )));
        }
        let (words, firsts) = self.words(roots);
        let roots: Vec<[u32; 2]> = firsts.into_iter().zip(roots).map(|(first, root)| [first, depths[*root]]).collect();
        for node in &self.nodes {
            if let Node::Leaf { first, count } = *node
                && let Some(last) = (first as usize + count as usize).checked_sub(1).filter(|_| count > 0)
            {
                self.entries[last].0 |= TreeNode::LAST;
            }
        }
        // A tensor must not be empty.
        if self.entries.is_empty() {
            self.entries.push((TreeNode::LAST, 0.0));
        }
        let (targets, weights): (Vec<u32>, Vec<f64>) = self.entries.into_iter().unzip();
        let inputs = [
            builder.cast(x, self.dtype)?,
            constant(builder, &[words.len(), 4], words.as_flattened())?,
            constant(builder, &[roots.len(), 2], roots.as_flattened())?,
            constant(builder, &[targets.len()], &targets)?,
            constant(builder, &[weights.len()], &weights)?,
            constant(builder, &[base.len()], base)?,
        ];
        let output = TensorSpec::new(dtype, Shape::new([x.dims()[0], base.len()])?);
        builder.emit_one(Op::Trees(Trees { aggregate }), &inputs, output)
    }
}
