//! Chooses among several plans: the plan with the shortest forecast wins.
//!
//! Strategies and their search know only nodes, transfers, serial links and slowdowns. The forecast of a finished plan
//! includes everything else, from streams to submissions, and decides. Candidates are:
//! - the best placement that the search saw;
//! - placements of strategies that differ from it;
//! - placements of programs whose streaming blocks were formed first;
//! - one placement that divides constants among the caches of several CPU devices.

use super::blocks::BlockPlanner;
use super::constants::divided;
use super::error::PlanningError;
use super::fitting::{Planner, still_wanted};
use super::placing::Placing;
use super::planned::Planned;
use super::request::{PlacementRequest, PlanChoice};
use super::strategy::Strategy;
use anabranch_base::error_kind::ErrorKind;
use anabranch_placement_core::place::{Improved, PlaceError, Placement, Placer, Reason, STRATEGIES, strategy_by_name};
use anabranch_placement_core::platform::DeviceKind;
use anabranch_placement_core::problem::Problem;
use anabranch_plan::{CandidatePlan, PlanOptions, StreamMode, Transfer};
use std::iter;
use std::time::Instant;

/// Most placements that are planned.
const MOST: usize = 8;

/// Most nodes of all candidate plans together, beyond the first plan: planning takes some ten microseconds per node.
const NODES: usize = 20_000;

/// Reason for placements by [`divided`].
const DIVIDED: Reason =
    Reason::Rule("the caches of this device's cores hold its constants, with those of the other nodes here");

/// A placement is planned only if its simulated makespan is at most this multiple of the best forecast: streams gain
/// less.
const HOPELESS: f64 = 1.5;

impl Planner<'_> {
    /// Places and plans as `choice` says, without preparing any device.
    ///
    /// Under [`Strategy::AUTO`], the plan with the shortest forecast is chosen from several. If a batch is divided, a
    /// strategy that cannot divide it ([`Strategy::may_divide`]) plans the whole batch.
    ///
    /// # Errors
    /// If there is no plan within the constraints, or the choice names what is not there. If the caller is interrupted
    /// ([`interruption`](anabranch_base::interruption)).
    pub fn plan(&self, choice: &PlanChoice) -> Result<Planned, PlanningError> {
        let started = Instant::now();
        let split = self.constraints.split.as_ref().filter(|_| choice.strategy.may_divide());
        let planned = if let Some(split) = split {
            self.split(split, choice)
        } else if choice.strategy == Strategy::AUTO {
            self.shortest(choice)
        } else {
            self.streamed(&PlacementRequest::of(&self.lowered.program, self.machine, choice)?, choice)
        };
        still_wanted()?;
        let planned = planned?.named(&choice.strategy.to_string());
        Ok(Planned { place_time: started.elapsed(), choice: choice.clone(), ..planned })
    }

    /// Returns the plan of a request, with or without streams.
    pub(super) fn streamed(&self, request: &PlacementRequest, choice: &PlanChoice) -> Result<Planned, PlanningError> {
        let placing = self.placing()?;
        streamed_if_shorter(&choice.plan, request.is_open(), |options| self.fitted(&placing, request, options))
    }

    /// Returns the plan with the shortest forecast.
    ///
    /// Plans one placement, and up to [`MOST`] more while all their plans together have at most [`NODES`] nodes.
    /// Searches once more with blocks formed first. If a placement does not fit, the strategies' alternatives are
    /// candidates, too.
    fn shortest(&self, choice: &PlanChoice) -> Result<Planned, PlanningError> {
        let mut contest = Contest::default();
        let placing = self.placing()?;
        let improved = self.improved(&placing, &self.machine.room(&choice.plan.weights))?;
        let different = &improved.different;
        let most = (NODES / self.lowered.program.nodes.len().max(1)).clamp(1, MOST);
        for (makespan, placement) in different.iter().take(most) {
            if contest.is_open(*makespan) {
                let request =
                    PlacementRequest::formed(Box::new(ForAuto(Box::new(Kept(placement.clone())))), choice.order);
                let once = |options: &PlanOptions| self.once(&placing, &request, options);
                contest.enter(placement.strategy, streamed_if_shorter(&choice.plan, true, once))?;
            }
        }
        if contest.short || [DeviceKind::Cpu, DeviceKind::Gpu].into_iter().any(|kind| self.is_tight(kind)) {
            self.enter_fitted(choice, &placing, &improved, &mut contest)?;
        }
        if choice.plan.streaming == StreamMode::Auto && most > 1 {
            let blocks = BlockPlanner::new(self.machine, &choice.plan, self.constraints);
            match blocks.before_placing(&self.lowered.program, self.constraints, choice.order) {
                Err(error) => contest.enter("blocks first", Err(error))?,
                Ok(requests) => requests.iter().try_for_each(|request| {
                    contest.enter("blocks first", self.once(&placing, request, &choice.plan))
                })?,
            }
        }
        let is_there = |device| !self.machine.lost.contains(&device);
        let divided = || divided(&self.lowered.program, &self.machine.devices, &self.machine.costs, is_there);
        if let Some(assignment) = (most > 1).then(divided).flatten() {
            // No strategy sees the content of caches: it is not a cost of a single node.
            let reasons = vec![DIVIDED; assignment.len()];
            let request = PlacementRequest::searched(assignment, reasons, choice.order);
            contest.enter("divided constants", self.once(&placing, &request, &choice.plan))?;
        }
        contest.winner()
    }

    /// Adds fitting plans of the best placement, and of every strategy as it would be planned alone, the best
    /// placements first.
    ///
    /// Adds as many plans as have together at most [`NODES`] nodes.
    fn enter_fitted(
        &self,
        choice: &PlanChoice,
        placing: &Placing<'_>,
        improved: &Improved,
        contest: &mut Contest,
    ) -> Result<(), PlanningError> {
        let found = || improved.portfolio.iter().map(|(name, _)| *name);
        let others = STRATEGIES.iter().map(|(name, _)| *name).filter(|name| found().all(|known| known != *name));
        let strategies = found().chain(others).filter_map(|name| Some((name, strategy_by_name(name)?)));
        let best: (_, Box<dyn Placer>) = ("auto", Box::new(Kept(improved.placement().clone())));
        let most = (NODES / self.lowered.program.nodes.len().max(1)).max(1);
        for (tried, (name, placer)) in iter::once(best).chain(strategies).enumerate() {
            // The search for a plan that fits at all has no limit.
            if tried >= most && contest.best.is_some() {
                break;
            }
            let request = PlacementRequest::formed(Box::new(ForAuto(placer)), choice.order);
            let fitted = |options: &PlanOptions| self.fitted(placing, &request, options);
            contest.enter(name, streamed_if_shorter(&choice.plan, true, fitted))?;
        }
        Ok(())
    }

    /// Runs the search. If no strategy finds enough memory, returns the result for unlimited memory: placement only
    /// estimates the memory of a plan.
    fn improved(&self, placing: &Placing<'_>, room: &[u64]) -> Result<Improved, PlanningError> {
        match placing.improve(room) {
            Err(error) if error.kind() == ErrorKind::Memory => {
                let ample = vec![u64::MAX; self.machine.devices.len()];
                placing.improve(&ample).map_err(|_| error)
            }
            improved => improved,
        }
    }
}

/// Returns the plan of a request as `plan` makes it.
///
/// If options and request (`open`) leave streaming open, plans with and without streams, and returns the plan with the
/// shorter forecast.
fn streamed_if_shorter(
    options: &PlanOptions,
    open: bool,
    plan: impl Fn(&PlanOptions) -> Result<Planned, PlanningError>,
) -> Result<Planned, PlanningError> {
    let streamed = plan(options);
    let open = open && options.streaming == StreamMode::Auto;
    if !open || streamed.as_ref().is_ok_and(|planned| !is_streamed(planned)) {
        return streamed;
    }
    let whole = plan(&options.clone().with_streaming(StreamMode::Off));
    match (streamed, whole) {
        (Ok(streamed), Ok(whole)) if makespan(&whole) < makespan(&streamed) => Ok(whole),
        (Err(error), Ok(whole)) if error.kind() == ErrorKind::Memory => Ok(whole),
        (streamed, _) => streamed,
    }
}

/// Candidate plans, and the first error.
#[derive(Default)]
pub(super) struct Contest {
    best: Option<Planned>,
    candidates: Vec<CandidatePlan>,
    error: Option<PlanningError>,
    /// Whether some plan did not fit.
    short: bool,
}

impl Contest {
    /// Whether a placement with this simulated makespan might win.
    fn is_open(&self, simulated: f64) -> bool {
        self.best.as_ref().is_none_or(|best| simulated <= HOPELESS * makespan(best))
    }

    /// Adds a candidate plan, or records that there is none.
    ///
    /// # Errors
    /// A bug in Anabranch, or an interruption: what only does not fit is no error as long as something else does.
    pub(super) fn enter(&mut self, name: &str, planned: Result<Planned, PlanningError>) -> Result<(), PlanningError> {
        match planned {
            Err(error) if matches!(error.kind(), ErrorKind::Internal | ErrorKind::Cancelled) => return Err(error),
            Err(error) => {
                self.short |= error.kind() == ErrorKind::Memory;
                self.error.get_or_insert(error);
            }
            Ok(planned) => {
                let (streamed, seconds) = (is_streamed(&planned), makespan(&planned));
                let staged = !planned.plan.staged(&planned.program).is_empty();
                let how = [(staged, "staged "), (planned.repaired, "repaired ")];
                let how: String = how.iter().filter(|(is, _)| *is).map(|(_, how)| *how).collect();
                let name = format!("{how}{name}");
                let candidate = CandidatePlan::new(name, streamed, seconds);
                if !self.candidates.contains(&candidate) {
                    self.candidates.push(candidate);
                }
                if self.best.as_ref().is_none_or(|best| seconds < makespan(best)) {
                    self.best = Some(planned);
                }
            }
        }
        Ok(())
    }

    /// Returns the best plan so far.
    pub(super) fn best(&self) -> Option<&Planned> {
        self.best.as_ref()
    }

    /// Returns the plan with the shortest forecast, with all candidates.
    ///
    /// # Errors
    /// The first error, if there is no plan.
    pub(super) fn winner(self) -> Result<Planned, PlanningError> {
        let Self { best, mut candidates, error, .. } = self;
        candidates.sort_by(|one, other| one.makespan.total_cmp(&other.makespan));
        match best {
            Some(best) => Ok(Planned { candidates, ..best }),
            None => Err(error.unwrap_or_else(PlanningError::no_plan)),
        }
    }
}

/// Predicted seconds of a plan.
fn makespan(planned: &Planned) -> f64 {
    planned.plan.predicted().makespan
}

/// Whether the plan streams anything, on one device or between devices.
fn is_streamed(planned: &Planned) -> bool {
    let streams = |transfer: &Transfer| transfer.stream().is_some();
    !planned.groups.is_empty() || planned.plan.transfers().iter().any(streams)
}

/// A placement found by the search.
struct Kept(Placement);

impl Placer for Kept {
    fn name(&self) -> &'static str {
        self.0.strategy
    }

    fn place(&self, _: &Problem<'_>) -> Result<Placement, PlaceError> {
        Ok(self.0.clone())
    }
}

/// A strategy whose plan `auto` may take.
struct ForAuto(Box<dyn Placer>);

impl Placer for ForAuto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn place(&self, problem: &Problem<'_>) -> Result<Placement, PlaceError> {
        self.0.place(problem).map(Placement::credited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Constraints, Lowered, Machine};
    use anabranch_base::memory_limit::MemoryLimit;
    use anabranch_costs::{DeviceCosts, Laws, LinkCosts, MachineCosts, Rates, Sample};
    use anabranch_ir::program::Program;
    use anabranch_placement_core::platform::DeviceKind;
    use anabranch_plan::Weights;
    use anabranch_plan::test_programs::{Maker, add, relu};
    use anabranch_plan::{MachineDevice, PlanOptions};
    use std::sync::Arc;

    /// Two equal cores with free arithmetic, memory of 10 GB/s, and 1 µs between the cores.
    fn machine() -> Machine {
        let device = |name: &str| {
            let (kind, name) = (DeviceKind::Cpu, name.to_owned());
            MachineDevice {
                key: name.clone(),
                name,
                kind,
                memory: MemoryLimit::NONE,
                times: 1.0,
                threads: 1,
                cache: 2 << 20,
            }
        };
        let rates = Rates { matmul_flops: 1e12, conv_flops: 1e12, map_flops: 1e12, bandwidth: 1e10, launch: 1e-6 };
        let mut costs = MachineCosts::default();
        for (one, other) in [("cpu0", "cpu1"), ("cpu1", "cpu0")] {
            costs.devices.insert(one.into(), DeviceCosts { rates: Some(rates), ..DeviceCosts::default() });
            costs.links.insert(MachineCosts::link_key(one, other), LinkCosts::affine(1e-6, 1e12));
        }
        Machine {
            devices: vec![device("cpu0"), device("cpu1")],
            gpus: Vec::new(),
            costs,
            laws: Laws::default(),
            lost: Default::default(),
        }
    }

    /// Two branches of three element-wise nodes on 32 MiB each, and their sum.
    fn branches() -> Program {
        let dims = [1 << 14, 512];
        let mut maker = Maker::new();
        let x = maker.input(&dims);
        let ends = [0, 1].map(|_| (0..3).fold(x, |last, _| maker.node(relu(), &[last], &dims)));
        let sum = maker.node(add(), &ends, &dims);
        maker.finish(&[sum])
    }

    fn plan(constraints: &Constraints, strategy: Strategy, streaming: StreamMode) -> Planned {
        plan_on(&machine(), constraints, strategy, streaming)
    }

    fn plan_on(machine: &Machine, constraints: &Constraints, strategy: Strategy, streaming: StreamMode) -> Planned {
        let weights = Arc::new(Weights::default());
        let lowered = Lowered { program: Arc::new(branches()), weights, rest: None };
        let plan = PlanOptions::default().with_streaming(streaming);
        let planner = Planner { lowered: &lowered, machine, constraints };
        planner.plan(&PlanChoice { strategy, plan, ..PlanChoice::default() }).expect("there is room")
    }

    #[test]
    fn the_least_forecast_of_all_candidates_is_taken() {
        let free = Constraints::default();
        let chosen = plan(&free, Strategy::AUTO, StreamMode::Auto);
        assert!(chosen.candidates.len() > 2 && chosen.candidates.is_sorted_by_key(|candidate| candidate.makespan));
        assert_eq!(chosen.candidates[0].makespan, makespan(&chosen));
        assert_eq!(chosen.plan().strategy(), "auto");
        for strategy in [Strategy::HEFT, Strategy::CPU, Strategy::Device("cpu1".into())] {
            let other = plan(&free, strategy, StreamMode::Auto);
            assert!(makespan(&chosen) <= makespan(&other) && other.candidates.is_empty());
        }
    }

    /// Candidates come from a strategy, from the search, with blocks formed first, or with constants divided among
    /// caches.
    #[test]
    fn nodes_that_are_placed_automatically_keep_their_reasons() {
        for streaming in [StreamMode::Auto, StreamMode::Off] {
            let chosen = plan(&Constraints::default(), Strategy::AUTO, streaming);
            for (at, reason) in chosen.placed.placement.reasons.iter().enumerate().take(chosen.program.nodes.len()) {
                let told = chosen.plan().reason(anabranch_ir::program::NodeId(at as u32));
                assert!(!matches!(reason, Reason::Given) && !told.contains("given"), "{reason}, {told}");
            }
        }
    }

    #[test]
    fn blocks_are_formed_before_placing_too_but_not_of_what_is_bound() {
        let first = |planned: &Planned| planned.candidates.iter().any(|candidate| candidate.name == "blocks first");
        let chosen = plan(&Constraints::default(), Strategy::AUTO, StreamMode::Auto);
        assert!(first(&chosen) && is_streamed(&chosen), "{:?}", chosen.candidates);
        let whole = plan(&Constraints::default(), Strategy::AUTO, StreamMode::Off);
        assert!(!first(&whole) && !is_streamed(&whole) && makespan(&chosen) < makespan(&whole));
        let bound = plan(&Constraints::default().with_pin("*", "cpu1"), Strategy::AUTO, StreamMode::Auto);
        assert!(!first(&bound), "{:?}", bound.candidates);
    }

    /// A block is kept only if its plan has a shorter forecast.
    #[test]
    fn what_streams_is_compared_with_what_does_not() {
        let free = Constraints::default();
        let [auto, off] = [StreamMode::Auto, StreamMode::Off].map(|mode| makespan(&plan(&free, Strategy::HEFT, mode)));
        assert!(auto <= off, "{auto} {off}");
    }

    /// The start once took the caller 1 µs and usually takes 20 µs; the other core takes 30 µs, and has less to do.
    #[test]
    fn runs_of_several_threads_are_forecast_to_begin_as_they_usually_do() {
        let mut known = machine();
        for threads in [0, 1] {
            let run = known.costs.runs.entry(MachineCosts::run_key(threads)).or_default();
            for microseconds in [1.0, 20.0, 20.0, 20.0, 20.0, 20.0, 20.0, 20.0] {
                let sample = Sample { nanoseconds: 1e3 * microseconds, cold: false, at: 0 };
                let later = Sample { nanoseconds: 1.5 * sample.nanoseconds, ..sample };
                assert!(run.start.add(sample) && run.join.add(later));
            }
        }
        for (strategy, begin) in [(Strategy::CPU, 1e-6), (Strategy::HEFT, 20e-6)] {
            let [at_once, later] = [&machine(), &known]
                .map(|machine| plan_on(machine, &Constraints::default(), strategy.clone(), StreamMode::Off));
            let found = makespan(&later) - makespan(&at_once);
            assert!((found - begin).abs() < 1e-9, "{strategy}: {found}");
        }
    }
}
