//! Disjoint sets of numbers, with the smallest number of a set as its root.

/// Each number is alone at first.
#[derive(Debug, Clone)]
pub struct UnionFind {
    parents: Vec<u32>,
}

impl UnionFind {
    /// The sets of the numbers below `count`.
    pub fn new(count: usize) -> Self {
        UnionFind { parents: (0..count as u32).collect() }
    }

    /// The smallest number of the set of `one`; halves the way to it.
    pub fn root(&mut self, one: usize) -> usize {
        let mut one = one;
        while self.parents[one] as usize != one {
            self.parents[one] = self.parents[self.parents[one] as usize];
            one = self.parents[one] as usize;
        }
        one
    }

    /// Makes one set of two; returns their roots, that which stays first.
    pub fn join(&mut self, one: usize, other: usize) -> (usize, usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.parents[one.max(other)] = one.min(other) as u32;
        (one.min(other), one.max(other))
    }

    /// Numbers the sets by their roots, ascending: the set of each number, and how many there are.
    pub fn numbered(mut self) -> (Vec<u32>, usize) {
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
