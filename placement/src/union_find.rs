//! Disjoint sets of numbers, with the smallest number of a set as its root.

/// Disjoint sets; at first each number is a set of its own.
pub(crate) struct UnionFind {
    parents: Vec<u32>,
}

impl UnionFind {
    pub(crate) fn new(count: usize) -> Self {
        UnionFind { parents: (0..count as u32).collect() }
    }

    /// Returns the smallest number of the set of `one`; halves the path to it.
    pub(crate) fn root(&mut self, one: usize) -> usize {
        let mut one = one;
        while self.parents[one] as usize != one {
            self.parents[one] = self.parents[self.parents[one] as usize];
            one = self.parents[one] as usize;
        }
        one
    }

    /// Joins two sets; returns the root that stays and the root that goes, in this order.
    pub(crate) fn join(&mut self, one: usize, other: usize) -> (usize, usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.parents[one.max(other)] = one.min(other) as u32;
        (one.min(other), one.max(other))
    }

    /// Numbers the sets by their roots, ascending. Returns the number of each element's set, and the number of sets.
    pub(crate) fn numbered(mut self) -> (Vec<u32>, usize) {
        let (mut sets, mut count) = (vec![0; self.parents.len()], 0);
        for number in 0..sets.len() {
            let root = self.root(number);
            // The root is the smallest member, so its set has a number before another member is reached.
            sets[number] = if root == number { count } else { sets[root] };
            count += u32::from(root == number);
        }
        (sets, count as usize)
    }
}
