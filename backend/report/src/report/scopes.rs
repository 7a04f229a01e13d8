//! Groups of nodes in which a large graph is shown: by the scopes in nodes' names (`/encoder/layers.0/attn/MatMul`). If
//! these are not enough, by the order of the graph, cut where few values are alive.

use serde::Serialize;
use std::collections::HashMap;
use std::ops::Range;

/// Most members of a group: with more, it is cut into parts, because more cannot be seen at once.
const MOST_MEMBERS: usize = 120;
/// Most inputs, and most outputs, that are shown separately.
const MOST_ENDS: usize = 12;
/// Most parts of a name that count; deeper scopes are not distinguished.
const MOST_DEPTH: usize = 12;

/// The groups, and the group of each task.
#[derive(Debug, PartialEq)]
pub(super) struct Scopes {
    /// Groups, each after its parent.
    pub(super) groups: Vec<Scope>,
    /// Group of each task.
    pub(super) of: Vec<Option<usize>>,
}

/// A group.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Scope {
    name: String,
    /// Index of the parent.
    parent: Option<usize>,
}

enum Member {
    Task(usize),
    Group(String, Vec<Member>),
}

/// Returns the groups of nodes with these names, in topological order. O(n · d + e) for names of d scopes.
///
/// The model's inputs and outputs are the tasks after the nodes; if they are few, they are in no group. `edges` are
/// pairs of tasks.
pub(super) fn scopes(names: &[&str], [inputs, outputs]: [usize; 2], edges: &[(usize, usize)]) -> Scopes {
    let tasks = names.len() + inputs + outputs;
    let paths: Vec<_> = names.iter().map(|name| path(name)).collect();
    let nodes = gathered(&(0..names.len()).collect::<Vec<_>>(), &paths, 0);
    let inputs = ends("inputs", names.len()..names.len() + inputs);
    let outputs = ends("outputs", tasks - outputs..tasks);
    let members = [inputs, nodes, outputs].into_iter().flat_map(|members| in_parts(members, edges, tasks)).collect();
    let mut scopes = Scopes { groups: Vec::new(), of: vec![None; tasks] };
    scopes.add(members, None);
    scopes
}

/// Returns the model's inputs or outputs: a group if they are many.
fn ends(name: &str, tasks: Range<usize>) -> Vec<Member> {
    let (many, members) = (tasks.len() > MOST_ENDS, tasks.map(Member::Task).collect());
    if many { vec![Member::Group(name.to_owned(), members)] } else { members }
}

/// Returns the scopes of a name, without the node's own name.
fn path(name: &str) -> Vec<&str> {
    let separator = if name.contains('/') { '/' } else { '.' };
    let mut parts: Vec<_> = name.split(separator).filter(|part| !part.is_empty()).collect();
    parts.pop();
    parts.truncate(MOST_DEPTH);
    parts
}

/// Groups tasks with the same scope at this depth, in the order of their first tasks. A group of one member becomes
/// that member. A group whose only member is a group gets both names.
fn gathered(tasks: &[usize], paths: &[Vec<&str>], depth: usize) -> Vec<Member> {
    enum Slot {
        Task(usize),
        Scope(Vec<usize>),
    }
    let mut slots = Vec::new();
    let mut place: HashMap<&str, usize> = HashMap::new();
    for task in tasks {
        let Some(scope) = paths[*task].get(depth) else {
            slots.push(Slot::Task(*task));
            continue;
        };
        let at = *place.entry(scope).or_insert_with(|| {
            slots.push(Slot::Scope(Vec::new()));
            slots.len() - 1
        });
        if let Slot::Scope(inside) = &mut slots[at] {
            inside.push(*task);
        }
    }
    let member = |slot| match slot {
        Slot::Task(task) => Member::Task(task),
        Slot::Scope(inside) => {
            let name = paths[inside[0]][depth];
            let mut members = gathered(&inside, paths, depth + 1);
            match (members.pop(), members.is_empty()) {
                (Some(Member::Task(task)), true) => Member::Task(task),
                (Some(Member::Group(inner, members)), true) => Member::Group(joined(name, &inner), members),
                (last, _) => Member::Group(name.to_owned(), members.into_iter().chain(last).collect()),
            }
        }
    };
    slots.into_iter().map(member).collect()
}

/// Joins a scope and its only child to one name: exporters often repeat the outer name in the inner
/// (`layer1/layer1.0`).
fn joined(outer: &str, inner: &str) -> String {
    if inner.starts_with(outer) { inner.to_owned() } else { format!("{outer}/{inner}") }
}

/// Divides groups of too many members into parts of nearly equal length, about as many parts as members of each. Each
/// part ends near its even share, at the position that fewest edges cross.
fn in_parts(members: Vec<Member>, edges: &[(usize, usize)], tasks: usize) -> Vec<Member> {
    let inner = |member| match member {
        Member::Group(name, members) => Member::Group(name, in_parts(members, edges, tasks)),
        task @ Member::Task(_) => task,
    };
    let members: Vec<_> = members.into_iter().map(inner).collect();
    if members.len() <= MOST_MEMBERS {
        return members;
    }
    let passing = passing(&members, edges, tasks);
    let length = (members.len() as f64).sqrt().ceil() as usize;
    let (count, slack) = (members.len().div_ceil(length), length / 4);
    let mut ends: Vec<usize> = (1..count)
        .map(|part| {
            let due = part * length;
            let near = due.saturating_sub(slack)..=(due + slack).min(members.len() - 1);
            near.min_by_key(|end| (passing[*end], end.abs_diff(due))).unwrap_or(due)
        })
        .collect();
    ends.push(members.len());
    let mut rest = members.into_iter();
    let mut begun = 0;
    let part = |(number, end): (usize, usize)| {
        let part: Vec<_> = rest.by_ref().take(end - begun).collect();
        begun = end;
        Member::Group(format!("part {}/{count}", number + 1), part)
    };
    ends.into_iter().enumerate().map(part).collect()
}

/// Returns, by position among the members, the number of edges that lead from before it to it or beyond.
fn passing(members: &[Member], edges: &[(usize, usize)], tasks: usize) -> Vec<i64> {
    fn place(member: &Member, at: usize, places: &mut [Option<usize>]) {
        match member {
            Member::Task(task) => places[*task] = Some(at),
            Member::Group(_, members) => members.iter().for_each(|member| place(member, at, places)),
        }
    }
    let mut places = vec![None; tasks];
    members.iter().enumerate().for_each(|(at, member)| place(member, at, &mut places));
    let mut change = vec![0; members.len() + 1];
    for (from, to) in edges {
        if let (Some(from), Some(to)) = (places[*from], places[*to])
            && from < to
        {
            change[from + 1] += 1;
            change[to + 1] -= 1;
        }
    }
    let mut sum = 0;
    let pass = |change: &i64| {
        sum += change;
        sum
    };
    change[..members.len()].iter().map(pass).collect()
}

impl Scopes {
    fn add(&mut self, members: Vec<Member>, parent: Option<usize>) {
        for member in members {
            match member {
                Member::Task(task) => self.of[task] = parent,
                Member::Group(name, members) => {
                    self.groups.push(Scope { name, parent });
                    self.add(members, Some(self.groups.len() - 1));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_groups_and_lonely_members_stand_alone() {
        let names = [
            "/embed/Gather",
            "/layers/layers.0/attn/MatMul",
            "/layers/layers.0/attn/Softmax",
            "/layers/layers.0/Add",
            "/layers/layers.1/Add",
            "/layers/layers.1/Mul",
            "head",
        ];
        let found = scopes(&names, [1, 1], &[]);
        let scope = |name: &str, parent| Scope { name: name.into(), parent };
        let groups =
            [scope("layers", None), scope("layers.0", Some(0)), scope("attn", Some(1)), scope("layers.1", Some(0))];
        assert_eq!(found.groups, groups);
        assert_eq!(found.of, [None, Some(2), Some(2), Some(1), Some(3), Some(3), None, None, None]);
    }

    #[test]
    fn scopes_with_one_scope_alone_are_one() {
        let found = scopes(&["a/a.0/x/Relu", "a/a.0/y/Relu", "a/a.0/y/Add", "b.c.d", "b.c.e"], [0, 0], &[]);
        let names: Vec<_> = found.groups.iter().map(|scope| scope.name.as_str()).collect();
        assert_eq!(names, ["a.0", "y", "b/c"]);
    }

    #[test]
    fn long_graphs_without_scopes_are_cut_where_little_passes() {
        let names: Vec<String> = (0..400).map(|node| format!("node_{node}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // Two parallel paths, which meet at every 20th node.
        let edges: Vec<_> = (0..399)
            .flat_map(|node| {
                let skip = (node % 20 != 0 && node % 20 != 19 && node + 2 < 400).then_some((node, node + 2));
                [Some((node, node + 1)), skip].into_iter().flatten()
            })
            .collect();
        let found = scopes(&names, [1, 1], &edges);
        assert_eq!(found.groups.len(), 20);
        assert!(found.of[..400].iter().all(Option::is_some) && found.of[400..].iter().all(Option::is_none));
        let crossing = |end: usize| edges.iter().filter(|(from, to)| *from < end && *to >= end).count();
        let ends: Vec<_> = (1..400).filter(|node| found.of[*node] != found.of[node - 1]).collect();
        assert_eq!(ends.len(), 19);
        assert!(ends.iter().all(|end| crossing(*end) == 1), "{ends:?}");
        let found = scopes(&[], [13, 12], &[]);
        assert_eq!((found.groups.len(), found.of[12], found.of[13]), (1, Some(0), None));
        // Groups are as deep as names are, up to the limit.
        let deep = format!("{}x", "s/".repeat(10_000));
        assert!(scopes(&[&deep, &deep], [0, 0], &[]).groups.len() <= 1);
    }
}
