//! Topological order of a graph's nodes (Kahn 1962), which keeps the file's order if that is topological.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Dependencies: for each node, the nodes whose outputs it reads.
#[derive(Default)]
pub(super) struct Needs(Vec<Vec<u32>>);

impl Needs {
    /// Adds the next node, which reads outputs of `makers`.
    pub(super) fn push(&mut self, makers: impl Iterator<Item = u32>) {
        self.0.push(makers.collect());
    }

    /// Returns the nodes in an order in which each comes after those that it needs. Among the possible next nodes, the
    /// first in the file comes next. O((nodes + needs) log nodes).
    ///
    /// # Errors
    /// If there is no such order: the nodes along a cycle, each of which needs the next, and the last needs the first.
    pub(super) fn order(&self) -> Result<Vec<u32>, Vec<u32>> {
        let nodes = self.0.len();
        let mut needers: Vec<Vec<u32>> = vec![Vec::new(); nodes];
        for (node, makers) in self.0.iter().enumerate() {
            makers.iter().for_each(|maker| needers[*maker as usize].push(node as u32));
        }
        let mut missing: Vec<usize> = self.0.iter().map(Vec::len).collect();
        let mut ready: BinaryHeap<_> =
            (0..nodes as u32).filter(|node| missing[*node as usize] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(nodes);
        while let Some(Reverse(node)) = ready.pop() {
            order.push(node);
            for needer in &needers[node as usize] {
                missing[*needer as usize] -= 1;
                if missing[*needer as usize] == 0 {
                    ready.push(Reverse(*needer));
                }
            }
        }
        if order.len() == nodes { Ok(order) } else { Err(self.cycle(&missing)) }
    }

    /// Finds a cycle among the nodes that still miss an input: follows missing inputs until a node repeats.
    fn cycle(&self, missing: &[usize]) -> Vec<u32> {
        let mut seen_at = vec![None; missing.len()];
        let mut path = Vec::new();
        let mut here = missing.iter().position(|count| *count > 0);
        while let Some(node) = here {
            if let Some(start) = seen_at[node] {
                return path.split_off(start);
            }
            seen_at[node] = Some(path.len());
            path.push(node as u32);
            here = self.0[node].iter().map(|maker| *maker as usize).find(|maker| missing[*maker] > 0);
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(list: &[&[u32]]) -> Needs {
        Needs(list.iter().map(|makers| makers.to_vec()).collect())
    }

    #[test]
    fn the_files_order_is_kept_where_it_is_one() {
        assert_eq!(needs(&[&[], &[], &[0], &[1, 1], &[2, 3]]).order(), Ok(vec![0, 1, 2, 3, 4]));
        assert_eq!(needs(&[&[1], &[2], &[], &[]]).order(), Ok(vec![2, 1, 0, 3]));
        assert_eq!(needs(&[]).order(), Ok(vec![]));
    }

    #[test]
    fn a_cycle_is_shown_without_what_leads_to_it() {
        assert_eq!(needs(&[&[1], &[2], &[3], &[1]]).order(), Err(vec![1, 2, 3]));
        assert_eq!(needs(&[&[], &[1, 0]]).order(), Err(vec![1]));
    }

    #[test]
    fn every_random_graph_is_ordered_or_has_a_cycle() {
        arbtest::arbtest(|u| {
            let nodes = u.int_in_range(1..=12)?;
            let mut list = Vec::new();
            for _ in 0..nodes {
                let count = u.int_in_range(0..=2)?;
                list.push((0..count).map(|_| u.int_in_range(0..=nodes - 1)).collect::<Result<Vec<u32>, _>>()?);
            }
            match needs(&list.iter().map(Vec::as_slice).collect::<Vec<_>>()).order() {
                Ok(order) => {
                    let mut place = vec![usize::MAX; list.len()];
                    order.iter().enumerate().for_each(|(at, node)| place[*node as usize] = at);
                    for (node, makers) in list.iter().enumerate() {
                        assert!(makers.iter().all(|maker| place[*maker as usize] < place[node]));
                    }
                }
                Err(cycle) => {
                    let next = cycle.iter().cycle().skip(1);
                    assert!(cycle.iter().zip(next).all(|(node, maker)| list[*node as usize].contains(maker)));
                }
            }
            Ok(())
        })
        .budget_ms(300);
    }
}
