//! Places a program by the devices' costs, and predicts its schedule.

use super::constraints::Constraints;
use super::error::PlanningError;
use super::machine::Machine;
use super::node_times::NodeTimes;
use super::request::PlacementRequest;
use anabranch_base::error_kind::ErrorKind;
use anabranch_costs::NodeCost;
use anabranch_ir::program::{NodeId, Program};
use anabranch_placement_core::check::{check_placement, check_schedule};
use anabranch_placement_core::cost::{CostTable, TimeTable, TransferCurve};
use anabranch_placement_core::evaluate::{Decision, decisions};
use anabranch_placement_core::graph::TaskId;
use anabranch_placement_core::loaded::{Facts, LoadedProblem};
use anabranch_placement_core::order::{InOrder, Order, Planned};
use anabranch_placement_core::place::{Auto, Improved, Placement};
use anabranch_placement_core::platform::{Device, DeviceId, DeviceKinds, Platform};
use anabranch_placement_core::problem::{MemoryRule, Problem};
use anabranch_placement_core::rules::{Delays, LinkContention, Rules};
use anabranch_placement_core::schedule::Schedule;
use anabranch_placement_core::simulate::simulate;
use anabranch_plan::Forecast;
use anabranch_plan::tasks::{NodeLimits, ProgramTasks, Role};

/// A placed program.
#[derive(Clone, Debug)]
pub struct Placed {
    /// Task graph that was placed.
    pub tasks: ProgramTasks,
    /// Devices and links of the placement.
    pub platform: Platform,
    /// Predicted cost of each node on each device, indexed by node; `None` if the node cannot run there.
    pub costs: Vec<Vec<Option<NodeCost>>>,
    /// Times of transfers by sender, receiver and size.
    curves: Vec<Vec<TransferCurve>>,
    /// Least seconds between the starts of nodes, for each device.
    intervals: Vec<f64>,
    /// Device of each task, with the reason.
    pub placement: Placement,
    /// Predicted schedule.
    pub schedule: Schedule,
}

impl Placed {
    /// Bytes that a device's nodes keep there, as placement counts them.
    pub(super) fn resident(&self, device: usize) -> u64 {
        let here = self.tasks.graph().tasks().iter().zip(&self.placement.device_of);
        here.filter(|(_, on)| on.index() == device).map(|(task, _)| task.memory).sum()
    }

    /// Number of tasks from which each device could choose at each start, in a schedule of this placement: the
    /// predicted schedule, or one of measured times.
    ///
    /// # Errors
    /// If the problem cannot be built again, which is a bug of Anabranch.
    pub fn decisions(&self, schedule: &Schedule) -> Result<Vec<Decision>, PlanningError> {
        let table = table(&self.tasks, &self.platform, &self.costs, &self.intervals, &self.curves)?;
        let problem = Problem::new(self.tasks.graph(), &self.platform, &table, MemoryRule::Ignore)
            .map_err(PlanningError::infeasible)?;
        Ok(decisions(&problem, schedule))
    }
}

/// A program on a set of devices: the common input of all strategies.
pub struct Placing<'a> {
    program: &'a Program,
    machine: &'a Machine,
    tasks: ProgramTasks,
    costs: Vec<Vec<Option<NodeCost>>>,
    /// Additions to the times of kernels, which the costs contain.
    times: NodeTimes,
    curves: Vec<Vec<TransferCurve>>,
    intervals: Vec<f64>,
}

impl<'a> Placing<'a> {
    /// Predicts the cost of each node on each device and applies the constraints.
    ///
    /// CPUs run all nodes, GPUs run the nodes for which all GPUs have a kernel.
    ///
    /// # Errors
    /// If a constraint names something unknown, or constraints contradict each other.
    pub fn new(program: &'a Program, machine: &'a Machine, constraints: &Constraints) -> Result<Self, PlanningError> {
        let devices = &machine.devices;
        let kinds = |runs: &bool| if *runs { DeviceKinds::ALL } else { DeviceKinds::CPU };
        let allowed: Vec<_> = machine.gpu_runs(program).iter().map(kinds).collect();
        let pins = constraints.pinned(program, devices)?;
        let residence = constraints.residence(program, devices)?;
        machine.has(pins.iter().flatten().chain(&residence.inputs).chain(&residence.outputs))?;
        let limits: Vec<_> = program
            .node_ids()
            .map(|n| NodeLimits {
                allowed: allowed[n.index()],
                pinned: pins[n.index()],
                resident: resident(program, n),
            })
            .collect();
        let tasks = ProgramTasks::new(program, &limits, &constraints.pairs(program)?, &residence)
            .map_err(PlanningError::infeasible)?;
        let ids = (0..devices.len() as u32).map(DeviceId);
        let predictors: Vec<_> = devices.iter().map(|device| machine.predictor(device)).collect();
        let appends = constraints.appends_in_place(program, &residence);
        let times = NodeTimes::unplaced(program, devices, &machine.costs);
        let costs = program
            .node_ids()
            .map(|id| (id, program.node(id), allowed[id.index()]))
            .map(|(id, node, allowed)| {
                let runs = |at: DeviceId| allowed.contains(devices[at.index()].kind) && !machine.lost.contains(&at);
                let cost = |at: DeviceId| {
                    let device = &devices[at.index()];
                    let in_place = appends.get(&id).filter(|(home, _)| *home == at);
                    let spec = in_place.map_or(&node.spec, |(_, written)| written);
                    let cost = predictors[at.index()].predict(spec).times(device.times);
                    let cost = times.kernel(id, at, cost);
                    NodeCost { seconds: times.alone(id, at).apply(cost.seconds), ..cost }
                };
                ids.clone().map(|at| runs(at).then(|| cost(at))).collect()
            })
            .collect();
        let curves = ids.clone().map(|from| ids.clone().map(|to| machine.crossing(from, to)).collect()).collect();
        let intervals = ids.map(|device| machine.encode(device)).collect();
        Ok(Self { program, machine, tasks, costs, times, curves, intervals })
    }

    /// Replaces the predicted cost of a node on a device by the cost `kernel` of its kernel; `None` if the node cannot
    /// run there.
    pub(super) fn assume(&mut self, node: NodeId, device: DeviceId, kernel: Option<NodeCost>) {
        let alone = self.times.alone(node, device);
        let cost = kernel.map(|kernel| NodeCost { seconds: alone.apply(kernel.seconds), ..kernel });
        self.costs[node.index()][device.index()] = cost;
    }

    /// Places the program within `memory` bytes per device (in the machine's order), checks the result, and simulates
    /// it.
    ///
    /// The simulation follows the request's rule, or its order if it has one.
    ///
    /// # Errors
    /// If there is no placement within the constraints.
    pub fn place(&self, request: &PlacementRequest, memory: &[u64]) -> Result<Placed, PlanningError> {
        let platform = self.platform(memory)?;
        let (placement, mut schedule) =
            self.with_problem(&platform, MemoryRule::Resident, |problem| place(problem, request))??;
        self.begin_with_inputs(&mut schedule);
        Ok(self.given(placement, schedule, platform))
    }

    /// Combines a placement and its schedule with the predictions for the devices of `platform`.
    pub(super) fn given(&self, placement: Placement, schedule: Schedule, platform: Platform) -> Placed {
        let (tasks, costs) = (self.tasks.clone(), self.costs.clone());
        let (curves, intervals) = (self.curves.clone(), self.intervals.clone());
        Placed { tasks, costs, curves, intervals, placement, schedule, platform }
    }

    /// Searches for the best placement within `memory` bytes per device.
    ///
    /// # Errors
    /// If no strategy finds a placement within the constraints.
    pub(super) fn improve(&self, memory: &[u64]) -> Result<Improved, PlanningError> {
        let improve = |problem: &Problem<'_>| Auto::default().improve(problem, |_, _| {});
        Ok(self.with_problem(&self.platform(memory)?, MemoryRule::Resident, improve)??)
    }

    /// Places as [`Self::place`] within `room` bytes per device. If the strategy finds no placement there, places as if
    /// memory were unlimited, because this count only estimates a plan's memory.
    ///
    /// # Errors
    /// If there is no placement within the other constraints.
    pub(super) fn place_roomy(&self, request: &PlacementRequest, room: &[u64]) -> Result<Placed, PlanningError> {
        let roomy = vec![u64::MAX; self.machine.devices.len()];
        self.place(request, room).or_else(|error| self.place(request, &roomy).map_err(|_| error))
    }

    /// Returns the problem that [`Self::place`] gives to the strategies, in seconds.
    ///
    /// # Errors
    /// If some node cannot run on any device.
    pub fn problem(&self, memory: &[u64]) -> Result<LoadedProblem, PlanningError> {
        let copy = |problem: &Problem<'_>| LoadedProblem::copy_of("program", problem);
        let loaded = self.with_problem(&self.platform(memory)?, MemoryRule::Resident, copy)?;
        let uncertainty = |task: TaskId, device: DeviceId| {
            self.costs.get(task.index())?[device.index()]?.uncertainty.map(|factor| factor.max(1.0))
        };
        let (tasks, devices) = (loaded.graph.task_count(), loaded.platform.device_count());
        let known = self.costs.iter().flatten().flatten().any(|cost| cost.uncertainty.is_some());
        let uncertainties = known.then(|| TimeTable::from_fn(tasks, devices, uncertainty)).transpose();
        let uncertainties = uncertainties.map_err(PlanningError::infeasible)?;
        let facts = Facts { time_unit: Some("s".into()), uncertainties, ..Facts::default() };
        Ok(LoadedProblem { facts, ..loaded })
    }

    /// Passes the problem of placing on `platform` to a function, under this machine's rules: a link moves one value at
    /// a time, and devices slow each other down.
    pub(super) fn with_problem<T>(
        &self,
        platform: &Platform,
        counts: MemoryRule,
        look: impl FnOnce(&Problem<'_>) -> T,
    ) -> Result<T, PlanningError> {
        let table = table(&self.tasks, platform, &self.costs, &self.intervals, &self.curves)?;
        let problem = Problem::new(self.tasks.graph(), platform, &table, counts).map_err(PlanningError::infeasible)?;
        let devices = self.machine.devices.len();
        let delays = Delays::from_fn(devices, |from, to| self.machine.delay(from, to));
        let rules = Rules::default().with_contention(LinkContention::SerialCopies).with_delays(delays);
        let rules = rules.with_slowdowns(self.machine.slowdowns(devices));
        Ok(look(&problem.under(rules).map_err(PlanningError::infeasible)?))
    }

    /// Returns the times that a scheduler at run time uses: predicted times of nodes on the devices that pins allow,
    /// and of transfers.
    pub fn forecast(&self) -> Forecast {
        let at = |node: usize, device: usize| {
            let pinned = self.tasks.graph().task(self.tasks.task(NodeId(node as u32))).pinned;
            let open = pinned.is_none_or(|pin| pin.index() == device);
            self.costs[node][device].filter(|_| open).map(|cost| cost.seconds)
        };
        let devices = 0..self.machine.devices.len();
        let nodes = (0..self.costs.len()).map(|node| devices.clone().map(|device| at(node, device)).collect());
        Forecast { nodes: nodes.collect(), links: self.curves.clone() }
    }

    /// Moves inputs to the front of the order: the caller's tensors exist before the run, and must not wait on the host
    /// behind a long task.
    pub(super) fn begin_with_inputs(&self, schedule: &mut Schedule) {
        schedule.order.sort_by_key(|task| !matches!(self.tasks.role(*task), Role::Input(_)));
    }

    /// Returns the task graph.
    pub(super) fn tasks(&self) -> &ProgramTasks {
        &self.tasks
    }

    /// Returns the predicted cost of each node on each device.
    pub(super) fn costs(&self) -> &[Vec<Option<NodeCost>>] {
        &self.costs
    }

    /// Returns the least seconds between the starts of nodes on a device.
    pub(super) fn interval(&self, device: usize) -> f64 {
        self.intervals[device]
    }

    /// Returns the devices with this much memory, and their links.
    pub(super) fn platform(&self, memory: &[u64]) -> Result<Platform, PlanningError> {
        let speed = |device: usize| {
            // Ranks that need one speed per device get its mean rate over the nodes that it can run.
            let costs = self.costs.iter().zip(&self.program.nodes);
            let (flops, seconds) = costs.fold((1.0, 1e-9), |(flops, seconds), (costs, node)| match costs[device] {
                Some(cost) => (flops + node.spec.work().flops, seconds + cost.seconds),
                None => (flops, seconds),
            });
            flops / seconds
        };
        let devices = self.machine.devices.iter().zip(memory).enumerate().map(|(index, (device, bytes))| {
            Device::new(&device.name, device.kind).with_memory(*bytes).with_speed(speed(index))
        });
        let affine = |from: DeviceId, to: DeviceId| {
            let link = self.machine.link(from, to);
            (link.latency, link.rate)
        };
        Platform::new(devices.collect(), affine).map_err(PlanningError::infeasible)
    }
}

/// Places a problem as requested, and simulates the placement; both results are checked.
fn place(problem: &Problem<'_>, request: &PlacementRequest) -> Result<(Placement, Schedule), PlanningError> {
    let placement = request.placer.place(problem)?;
    let refuse = |violation: String| {
        let strategy = placement.strategy;
        let text = format!(
            "the strategy `{strategy}` gave an invalid result, which is a bug in Anabranch; please report it: \
             {violation}"
        );
        PlanningError::new(ErrorKind::Internal, text)
    };
    if let Some(violation) = check_placement(problem, &placement.device_of).first() {
        return Err(refuse(violation.to_string()));
    }
    let order: Box<dyn Order + '_> = match &request.order {
        Some(order) => Box::new(Planned::new(order)),
        None => match placement.order_to_keep() {
            Some(order) if request.rule == super::strategy::Order::Pct => Box::new(InOrder::new(order)),
            _ => request.rule.rule(),
        },
    };
    let schedule = simulate(problem, &placement.device_of, &*order)?;
    drop(order);
    match check_schedule(problem, &placement.device_of, &schedule).first() {
        None => Ok((placement, schedule)),
        Some(violation) => Err(refuse(violation.to_string())),
    }
}

/// Builds the table of the seconds of each task on each device, and of transfers. A GPU does not start nodes faster
/// than the host encodes them.
fn table<'g>(
    tasks: &'g ProgramTasks,
    platform: &'g Platform,
    costs: &[Vec<Option<NodeCost>>],
    intervals: &[f64],
    curves: &[Vec<TransferCurve>],
) -> Result<CostTable<'g>, PlanningError> {
    let table = CostTable::from_fn(tasks.graph(), platform, |task, device| match tasks.role(task) {
        Role::Node(node) => costs[node.index()][device.index()].map(|cost| cost.seconds.max(intervals[device.index()])),
        Role::Input(_) | Role::Output(_) => Some(0.0),
    });
    let table = table.map_err(PlanningError::infeasible)?;
    Ok(table.with_links(|from, to| curves[from.index()][to.index()].clone()))
}

/// Bytes of the constants that a node reads.
fn resident(program: &Program, node: NodeId) -> u64 {
    let inputs = &program.node(node).inputs;
    inputs.iter().filter_map(|input| program.constant(*input)).map(|constant| constant.bytes() as u64).sum()
}
