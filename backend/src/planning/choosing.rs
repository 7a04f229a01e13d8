//! Which of several plans is taken: the one that is forecast to end first.
//!
//! Strategies and their search know of nodes, transfers, serial links and slowdowns, and go by that. What only a finished plan shows,
//! from streams to submissions, is in its forecast, which has the last word: over the best placement that the search saw, those of the
//! strategies that differ from it, and those of programs whose streaming blocks were formed before they were placed.

use super::blocks::BlockPlanner;
use super::error::PlanningError;
use super::fitting::Planner;
use super::planned::{CandidatePlan, Planned};
use super::request::{PlacementRequest, PlanChoice};
use crate::plan::{PlanOptions, Route, StreamMode, Transfer};
use anabranch_placement::check::check_placement;
use anabranch_placement::place::{Auto, PlaceError, Placement, Placer};
use anabranch_placement::problem::Problem;

/// Placements that are planned at most …
const MOST: usize = 8;

/// … and nodes of all their plans together, beyond the first: planning takes some ten microseconds a node.
const NODES: usize = 20_000;

/// A placement is planned only if its simulated makespan is at most this many times the least forecast: streams gain less.
const HOPELESS: f64 = 1.5;

impl Planner<'_> {
    /// The plan that is forecast to be the shortest. Plans one placement, and up to [`MOST`] more while all their plans together have at
    /// most [`NODES`] nodes: about half a second beyond the search.
    pub(super) fn shortest(&self, choice: &PlanChoice) -> Result<Planned, PlanningError> {
        let mut contest = Contest::default();
        let request = |placement: Placement| PlacementRequest::formed(Box::new(Kept(placement)), choice.order);
        let different = self.placing()?.improve(&self.machine.memory())?.different;
        let most = (NODES / self.lowered.program.nodes.len().max(1)).clamp(1, MOST);
        for (makespan, placement) in different.into_iter().take(most) {
            if contest.is_open(makespan) {
                let name = placement.strategy;
                contest.enter(name, self.streamed_if_shorter(&request(placement), &choice.plan));
            }
        }
        if choice.plan.streaming == StreamMode::Auto && most > 1 {
            let blocks = BlockPlanner::new(self.machine, &choice.plan, self.constraints);
            for placed in blocks.before_placing(&self.lowered.program, self.constraints, choice.order)? {
                contest.enter("blocks first", self.fitted(&placed, &choice.plan));
            }
        }
        contest.winner()
    }

    /// The plan of a request; where the options leave it open what is streamed, the one with streams or the one without, whichever is
    /// forecast to be shorter.
    pub(super) fn streamed_if_shorter(
        &self,
        request: &PlacementRequest,
        options: &PlanOptions,
    ) -> Result<Planned, PlanningError> {
        let streamed = self.fitted(request, options);
        let open = options.streaming == StreamMode::Auto && request.is_open();
        if !open || streamed.as_ref().is_ok_and(|planned| !is_streamed(planned)) {
            return streamed;
        }
        let whole = self.fitted(request, &options.clone().with_streaming(StreamMode::Off));
        match (streamed, whole) {
            (Ok(streamed), Ok(whole)) if makespan(&whole) < makespan(&streamed) => Ok(whole),
            (Err(_), Ok(whole)) => Ok(whole),
            (streamed, _) => streamed,
        }
    }
}

/// The plans that were made, and the first error.
#[derive(Default)]
struct Contest {
    best: Option<Planned>,
    candidates: Vec<CandidatePlan>,
    error: Option<PlanningError>,
}

impl Contest {
    /// Whether a placement of this simulated makespan might win.
    fn is_open(&self, simulated: f64) -> bool {
        self.best.as_ref().is_none_or(|best| simulated <= HOPELESS * makespan(best))
    }

    fn enter(&mut self, name: &str, planned: Result<Planned, PlanningError>) {
        match planned {
            Err(error) => drop(self.error.get_or_insert(error)),
            Ok(planned) => {
                let streamed = is_streamed(&planned);
                let seconds = makespan(&planned);
                self.candidates.push(CandidatePlan { name: name.to_owned(), streamed, makespan: seconds });
                if self.best.as_ref().is_none_or(|best| seconds < makespan(best)) {
                    self.best = Some(planned);
                }
            }
        }
    }

    fn winner(self) -> Result<Planned, PlanningError> {
        let Self { best, mut candidates, error } = self;
        candidates.sort_by(|one, other| one.makespan.total_cmp(&other.makespan));
        match best {
            Some(best) => Ok(Planned { candidates, ..best }),
            None => Err(error.unwrap_or_else(PlanningError::no_plan)),
        }
    }
}

/// Seconds that a plan is forecast to take.
fn makespan(planned: &Planned) -> f64 {
    planned.plan.predicted().makespan
}

/// Whether anything is streamed: on one device, or from one to another.
fn is_streamed(planned: &Planned) -> bool {
    let moves = |transfer: &Transfer| matches!(transfer.route, Route::Streamed(_));
    !planned.groups.is_empty() || planned.plan.transfers().iter().any(moves)
}

/// A placement that the search has made, as long as devices have room for it.
struct Kept(Placement);

impl Placer for Kept {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        if check_placement(problem, &self.0.device_of).is_empty() {
            return Ok(Placement { strategy: self.name(), ..self.0.clone() });
        }
        Auto::default().place(problem)
    }
}
