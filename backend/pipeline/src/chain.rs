//! A program as a chain of intervals, which stages are made of.

use super::feedback::{Feedback, stages_of};
use super::interval::Cut;
use super::mapping::refused;
use anabranch_ir::program::{NodeId, Origin, Program};
use anabranch_placement::pipeline::cut::{Carried, CutOptions, cut};
use anabranch_placement::pipeline::{StageKind, Stages};
use anabranch_placement_core::graph::{GraphBuilder, Task, TaskGraph, TaskId};
use anabranch_session::SessionError;

/// Most intervals: this many are mapped in milliseconds.
const CUTS: usize = 60;

/// The intervals.
pub(super) struct Chain {
    /// All nodes, in a topological order.
    pub(super) order: Vec<NodeId>,
    /// Number of nodes of each interval.
    pub(super) sizes: Vec<usize>,
    /// The intervals as stages of the theory, with the bytes of their constants.
    pub(super) stages: Stages,
}

impl Chain {
    /// Cuts a program where few bytes pass and no state is parted. `seconds` is the time of a node on each of so many
    /// processors. O(nodes × (processors + degree + states) + cuts²).
    pub(super) fn of(
        program: &Program,
        states: &[Feedback],
        processors: usize,
        seconds: impl Fn(NodeId, usize) -> f64,
    ) -> Result<Self, SessionError> {
        let all: Vec<NodeId> = program.node_ids().collect();
        let live = Cut::new(program, &all, &[all.len()], states).live;
        let options = CutOptions { stages: CUTS, input: live[0], output: live[1] };
        let seconds = |task: TaskId, processor: usize| Some(seconds(NodeId(task.0), processor));
        let carried: Vec<Carried> = states.iter().map(|state| state.carried.clone()).collect();
        let found = cut(&graph(program)?, processors, seconds, &carried, options);
        let order: Vec<NodeId> = found.order.iter().map(|task| NodeId(task.0)).collect();
        let sizes: Vec<usize> = found.starts.windows(2).map(|ends| ends[1] - ends[0]).collect();
        let (stage_of, mut stages) = (stages_of(&order, &sizes), found.stages);
        // A state that no node reads has a home, too.
        for state in states {
            if let Some(home) = stages.stages.get_mut(state.home(|node| stage_of[node.index()])) {
                home.kind = StageKind::Monolithic;
            }
        }
        Ok(Self { order, sizes, stages })
    }
}

/// Returns the graph of the nodes, with the bytes of their constants and of the values that pass between them.
fn graph(program: &Program) -> Result<TaskGraph, SessionError> {
    let mut builder = GraphBuilder::new();
    for node in &program.nodes {
        let constants = node.inputs.iter().filter(|input| program.constant(**input).is_some());
        let memory = constants.map(|input| program.value(*input).spec.bytes() as u64).fold(0, u64::saturating_add);
        builder.task(Task { memory, ..Task::new(&node.name) });
    }
    for (value, consumers) in program.values.iter().zip(program.consumers()) {
        if let Origin::Node(maker) = value.origin {
            let datum = builder.datum(TaskId(maker.0), value.spec.bytes() as u64);
            consumers.iter().for_each(|reader| builder.consume(datum, TaskId(reader.0)));
        }
    }
    builder.build().map_err(|error| refused(error.to_string()))
}
