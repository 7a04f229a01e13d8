//! Groups the nodes that the provider computes into large parts, without a cycle through other nodes.

/// Groups the nodes that are `ours` into parts that are large and can be found in linear time. O(nodes + edges).
///
/// Each part is connected, and no path leaves a part and comes back, so that the parts and the other nodes can be run
/// one after the other. `makers` lists, for each node, the nodes whose values it reads. Parts, and the nodes in them,
/// are in a topological order.
///
/// Along each edge a level stays equal or, between our nodes and others, rises by one. Two of our nodes on one level
/// are not connected through others, because such a path rises twice. So the connected groups on a level are parts.
/// Nodes on a cycle, which no graph has, are in no part.
pub(crate) fn parts(makers: &[Vec<usize>], ours: &[bool]) -> Vec<Vec<usize>> {
    let order = topological_order(makers);
    let mut level = vec![0usize; makers.len()];
    for node in &order {
        let from = |maker: &usize| level[*maker] + usize::from(ours[*maker] != ours[*node]);
        level[*node] = makers[*node].iter().map(from).max().unwrap_or(0);
    }
    let mut group: Vec<usize> = (0..makers.len()).collect();
    for node in order.iter().copied().filter(|node| ours[*node]) {
        for maker in makers[node].iter().copied().filter(|maker| ours[*maker] && level[*maker] == level[node]) {
            let (one, other) = (root(&mut group, maker), root(&mut group, node));
            group[one] = other;
        }
    }
    let mut parts: Vec<Vec<usize>> = vec![Vec::new(); makers.len()];
    order.iter().copied().filter(|node| ours[*node]).for_each(|node| parts[root(&mut group, node)].push(node));
    parts.retain(|part| !part.is_empty());
    parts.sort_by_key(|part| level[part[0]]);
    parts
}

/// Returns the nodes, makers first.
fn topological_order(makers: &[Vec<usize>]) -> Vec<usize> {
    let mut readers = vec![Vec::new(); makers.len()];
    let mut open: Vec<usize> = makers.iter().map(Vec::len).collect();
    for (node, makers) in makers.iter().enumerate() {
        makers.iter().for_each(|maker| readers[*maker].push(node));
    }
    let mut order: Vec<usize> = (0..makers.len()).filter(|node| open[*node] == 0).collect();
    let mut at = 0;
    while let Some(node) = order.get(at).copied() {
        at += 1;
        for reader in &readers[node] {
            open[*reader] -= 1;
            if open[*reader] == 0 {
                order.push(*reader);
            }
        }
    }
    order
}

/// Returns the representative of a node's group.
fn root(group: &mut [usize], mut node: usize) -> usize {
    while group[node] != node {
        group[node] = group[group[node]];
        node = group[node];
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_node_of_others_between_two_of_ours_parts_them() {
        // 0 → 1 → 2 and 0 → 2, and node 1 is not ours: 0 and 2 together would make a cycle.
        assert_eq!(parts(&[vec![], vec![0], vec![0, 1]], &[true, false, true]), [vec![0], vec![2]]);
        assert_eq!(parts(&[vec![], vec![0], vec![0, 1]], &[true; 3]), [vec![0, 1, 2]]);
        assert_eq!(parts(&[vec![1], vec![]], &[true, true]), [vec![1, 0]], "in a topological order");
        assert_eq!(parts(&[vec![], vec![]], &[true, true]).len(), 2, "what is not connected is apart");
        assert!(parts(&[vec![]], &[false]).is_empty() && parts(&[], &[]).is_empty());
    }

    /// Whether some path leaves `part` and comes back.
    fn is_left_and_entered_again(makers: &[Vec<usize>], part: &BTreeSet<usize>) -> bool {
        // Nodes outside that depend on the part.
        let mut outside = vec![false; makers.len()];
        (0..makers.len()).any(|node| {
            let after = makers[node].iter().any(|maker| outside[*maker]);
            outside[node] = !part.contains(&node) && (after || makers[node].iter().any(|maker| part.contains(maker)));
            part.contains(&node) && after
        })
    }

    #[test]
    fn parts_of_random_graphs_hold_all_nodes_once_and_make_no_cycle() {
        arbtest::arbtest(|u| {
            let count = u.int_in_range(0..=30)?;
            let mut makers = Vec::new();
            for node in 0..count {
                let mut of_node = BTreeSet::new();
                for _ in 0..u.int_in_range(0..=3)? {
                    of_node.extend((node > 0).then(|| u.int_in_range(0..=node.max(1) - 1)).transpose()?);
                }
                makers.push(of_node.into_iter().collect::<Vec<usize>>());
            }
            let ours = (0..count).map(|_| u.ratio(3u8, 4u8)).collect::<Result<Vec<_>, _>>()?;
            let found = parts(&makers, &ours);
            let mut all: Vec<usize> = found.iter().flatten().copied().collect();
            all.sort_unstable();
            assert_eq!(all, (0..count).filter(|node| ours[*node]).collect::<Vec<_>>());
            for part in &found {
                assert!(!is_left_and_entered_again(&makers, &part.iter().copied().collect()), "{makers:?} {part:?}");
            }
            Ok(())
        })
        .budget_ms(500);
    }
}
