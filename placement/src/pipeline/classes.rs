//! Classes of interchangeable processors.

use super::problem::Problem;
use super::processors::Port;

/// Returns the processors by class. Exchanging two processors of a class changes nothing. `O(processors² × (stages +
/// processors))`.
pub(super) fn classes(problem: &Problem) -> Vec<Vec<usize>> {
    let mut classes: Vec<Vec<usize>> = Vec::new();
    for processor in 0..problem.processor_count() {
        match classes.iter_mut().find(|class| alike(problem, class[0], processor)) {
            Some(class) => class.push(processor),
            None => classes.push(vec![processor]),
        }
    }
    classes
}

fn alike(problem: &Problem, one: usize, other: usize) -> bool {
    let link = |from, to| problem.processors().link(from, to);
    let (a, b) = (Port::Processor(one), Port::Processor(other));
    let others = (0..problem.processor_count()).filter(|&it| it != one && it != other).map(Port::Processor);
    let stages = &problem.stages().stages;
    stages.iter().all(|stage| stage.times[one] == stage.times[other])
        && same_memory(problem, one, other)
        && team(problem, one) == team(problem, other)
        && link(a, b) == link(b, a)
        && others.chain([Port::Outside]).all(|port| link(a, port) == link(b, port) && link(port, a) == link(port, b))
}

/// Whether both processors work in one memory, in separate memories of equal size, or in none.
fn same_memory(problem: &Problem, one: usize, other: usize) -> bool {
    let memories = problem.processors().memories();
    let memory = |processor| memories.iter().find(|(_, members)| members.contains(&processor));
    match (memory(one), memory(other)) {
        (None, None) => true,
        (Some((bytes, members)), Some((as_many, _))) => {
            members.contains(&other) || (members.len() == 1 && memory_is_own(problem, other) && bytes == as_many)
        }
        _ => false,
    }
}

fn team(problem: &Problem, processor: usize) -> Option<usize> {
    problem.processors().teams().iter().position(|members| members.contains(&processor))
}

fn memory_is_own(problem: &Problem, processor: usize) -> bool {
    problem.processors().memories().iter().any(|(_, members)| members[..] == [processor])
}

/// Whether all links are identical: the paper's *communication homogeneous* platforms. `O(processors²)`.
pub(super) fn links_alike(problem: &Problem) -> bool {
    let ports = || (0..problem.processor_count()).map(Port::Processor).chain([Port::Outside]);
    let mut links = ports()
        .flat_map(|from| ports().filter(move |&to| to != from).map(move |to| (from, to)))
        .map(|(from, to)| problem.processors().link(from, to));
    let first = links.next();
    links.all(|link| Some(link) == first)
}
