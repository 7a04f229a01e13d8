//! From a program and the devices' costs to a placement and its predicted schedule.

use super::pattern;
use crate::execute::Forecast;
use crate::plan::PlanFile;
use crate::profile::{LinkCosts, MachineCosts, NodeCost, Predictor};
use crate::program::{NodeId, Program};
use crate::stream::Group;
use crate::tasks::{NodeLimits, ProgramTasks, Role};
use anabranch_kernels::op::NodeSpec;
use anabranch_placement::check::{check_placement, check_schedule};
use anabranch_placement::cost::{CostError, CostTable, TransferCurve};
use anabranch_placement::evaluate::{Decision, decisions};
use anabranch_placement::format::{Facts, LoadedProblem};
use anabranch_placement::graph::TaskId;
use anabranch_placement::order::{Order, Planned};
use anabranch_placement::place::{Placement, Placer};
use anabranch_placement::platform::{Device, DeviceId, DeviceKind, DeviceKinds, Platform};
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_placement::schedule::Schedule;
use anabranch_placement::simulate::{SimulateOptions, simulate};
use std::path::PathBuf;

/// A device as placement sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Name within this machine: `cpu0`, `gpu0`.
    pub name: String,
    /// CPU or GPU.
    pub kind: DeviceKind,
    /// What its costs are filed under.
    pub key: String,
    /// Bytes that a plan may use there.
    pub memory: u64,
    /// What the times filed under the key are multiplied by; 1 for a device that is there.
    pub times: f64,
}

impl Target {
    /// The predicted time of a node here, by the predictor of its key.
    pub fn predict(&self, known: &Predictor<'_>, node: &NodeSpec) -> NodeCost {
        let cost = known.predict(node);
        NodeCost { seconds: cost.seconds * self.times, ..cost }
    }
}

/// What the user wants of the placement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    /// Nodes whose names match the pattern run on the device of this name. The first match counts.
    pub pins: Vec<(String, String)>,
    /// Nodes whose names match one pattern run all on one device.
    pub colocated: Vec<String>,
}

/// Who places, and in which order each device then runs its tasks.
pub struct Wish {
    /// The strategy, or a given assignment.
    pub placer: Box<dyn Placer>,
    /// Which of a device's ready tasks goes first.
    pub rule: Box<dyn Order>,
    /// An order of all tasks to follow in the place of the rule.
    pub order: Option<Vec<TaskId>>,
    /// Which nodes stream into each other.
    pub blocks: WishedBlocks,
}

/// Who says which nodes of a device are streaming blocks.
pub enum WishedBlocks {
    /// The options of plans.
    Formed,
    /// A plan file, if it says anything about blocks; else the options.
    Listed(GivenFile),
    /// These groups of nodes, with an order of all tasks of the contracted program.
    Given(Vec<Group>, Vec<TaskId>),
}

/// A plan file, and where it is.
pub struct GivenFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it says.
    pub plan: PlanFile,
}

/// A wish that cannot be met, or a problem without a solution.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlacingError {
    /// A pin names no device.
    #[error("pin `{pattern}={device}`: there is no device `{device}`; the devices are {known}")]
    UnknownDevice {
        /// The pattern.
        pattern: String,
        /// The device named.
        device: String,
        /// The devices that there are.
        known: String,
    },
    /// A pattern matches no node.
    #[error("no node's name matches `{pattern}`; `anabranch place` lists the names")]
    NoMatch {
        /// The pattern.
        pattern: String,
    },
    /// Constraints contradict each other.
    #[error(transparent)]
    Graph(#[from] anabranch_placement::graph::GraphError),
    /// A device or link has impossible figures.
    #[error(transparent)]
    Platform(#[from] anabranch_placement::platform::PlatformError),
    /// A cost is impossible.
    #[error(transparent)]
    Cost(#[from] anabranch_placement::cost::CostError),
    /// Some node can run nowhere.
    #[error(transparent)]
    Problem(#[from] anabranch_placement::problem::ProblemError),
    /// The strategy found no placement.
    #[error(transparent)]
    Place(#[from] anabranch_placement::place::PlaceError),
    /// The placement cannot be simulated.
    #[error(transparent)]
    Simulate(#[from] anabranch_placement::simulate::SimulateError),
    /// The independent checker found a fault in the strategy's result.
    #[error("the strategy `{strategy}` gave an invalid result, which is a fault of Anabranch: {violation}")]
    Checker {
        /// The strategy.
        strategy: &'static str,
        /// The first violation.
        violation: String,
    },
}

/// A placed program.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The task graph that was placed.
    pub tasks: ProgramTasks,
    /// The devices and links that it was placed on.
    pub platform: Platform,
    /// Predicted cost of each node on each device, node by node; `None` where it cannot run.
    pub costs: Vec<Vec<Option<NodeCost>>>,
    /// Times of transfers by sender, receiver and size.
    curves: Vec<Vec<TransferCurve>>,
    /// The device of each task, and why.
    pub placement: Placement,
    /// The predicted schedule.
    pub schedule: Schedule,
}

impl Placed {
    /// Bytes that the nodes of a device keep there, as placement counted them.
    pub fn resident(&self, device: usize) -> u64 {
        let here = self.tasks.graph().tasks().iter().zip(&self.placement.device_of);
        here.filter(|(_, on)| on.index() == device).map(|(task, _)| task.memory).sum()
    }

    /// From how many tasks each device could choose whenever it started one, in a schedule of this placement: the predicted one,
    /// or one made of measured times.
    ///
    /// # Errors
    /// If the problem cannot be built again, which is a fault of Anabranch.
    pub fn decisions(&self, schedule: &Schedule) -> Result<Vec<Decision>, PlacingError> {
        let table = table(&self.tasks, &self.platform, &self.costs, &self.curves)?;
        let problem = Problem::new(self.tasks.graph(), &self.platform, &table, MemoryRule::Ignore)?;
        Ok(decisions(&problem, schedule))
    }
}

/// A program on a set of devices: what all strategies share.
pub struct Placing<'a> {
    program: &'a Program,
    targets: &'a [Target],
    tasks: ProgramTasks,
    costs: Vec<Vec<Option<NodeCost>>>,
    known: &'a MachineCosts,
    curves: Vec<Vec<TransferCurve>>,
}

impl<'a> Placing<'a> {
    /// Predicts the cost of each node on each device and applies the wishes. `gpu_runs` says which nodes GPUs have a kernel
    /// for; CPUs run all.
    ///
    /// # Errors
    /// If a wish names what is not there, or wishes contradict each other.
    pub fn new(
        program: &'a Program,
        targets: &'a [Target],
        known: &'a MachineCosts,
        wishes: &Wishes,
        gpu_runs: &dyn Fn(NodeId) -> bool,
    ) -> Result<Self, PlacingError> {
        let allowed: Vec<_> =
            program.node_ids().map(|n| if gpu_runs(n) { DeviceKinds::ALL } else { DeviceKinds::CPU }).collect();
        let pins = pins(program, targets, &wishes.pins)?;
        let limits: Vec<_> = program
            .node_ids()
            .map(|n| NodeLimits {
                allowed: allowed[n.index()],
                pinned: pins[n.index()],
                resident: resident(program, n),
            })
            .collect();
        let tasks = ProgramTasks::new(program, &limits, &colocated(program, &wishes.colocated)?)?;
        let predictors: Vec<_> = targets.iter().map(|target| Predictor::new(known.devices.get(&target.key))).collect();
        let costs = program
            .nodes
            .iter()
            .zip(&allowed)
            .map(|(node, allowed)| {
                let runs = |target: &Target| allowed.contains(target.kind);
                let predicted = targets.iter().zip(&predictors);
                predicted.map(|(target, known)| runs(target).then(|| target.predict(known, &node.spec))).collect()
            })
            .collect();
        let curve = |from: &Target, to: &Target| link(known, from, to).curve();
        let curves = targets.iter().map(|from| targets.iter().map(|to| curve(from, to)).collect()).collect();
        Ok(Self { program, targets, tasks, costs, known, curves })
    }

    /// Predicts `cost` for a node on a device, in the place of what the store says.
    pub fn assume(&mut self, node: NodeId, device: DeviceId, cost: NodeCost) {
        self.costs[node.index()][device.index()] = Some(cost);
    }

    /// Places the program within `memory` bytes per device (in the order of the targets), checks the result, and
    /// simulates it: under the wish's rule, or in the order that it brings along.
    ///
    /// # Errors
    /// If there is no placement within the constraints.
    pub fn place(&self, wish: &Wish, memory: &[u64]) -> Result<Placed, PlacingError> {
        self.place_in_order(&*wish.placer, (&*wish.rule, wish.order.as_deref()), memory)
    }

    /// As [`Self::place`]: by a rule, or in an order of all tasks.
    pub(super) fn place_in_order(
        &self,
        placer: &dyn Placer,
        (rule, order): (&dyn Order, Option<&[TaskId]>),
        memory: &[u64],
    ) -> Result<Placed, PlacingError> {
        let platform = self.platform(memory)?;
        let table = table(&self.tasks, &platform, &self.costs, &self.curves)?;
        let problem = Problem::new(self.tasks.graph(), &platform, &table, MemoryRule::Resident)?;
        let placement = placer.place(&problem)?;
        let refuse = |violation: String| PlacingError::Checker { strategy: placement.strategy, violation };
        if let Some(violation) = check_placement(&problem, &placement.device_of).first() {
            return Err(refuse(violation.to_string()));
        }
        let options = SimulateOptions::default();
        let planned = order.map(Planned::new);
        let order = planned.as_ref().map_or(rule, |planned| planned as &dyn Order);
        let mut schedule = simulate(&problem, &placement.device_of, order, &options)?;
        if let Some(violation) = check_schedule(&problem, &placement.device_of, &schedule, &options).first() {
            return Err(refuse(violation.to_string()));
        }
        // The caller's tensors are all there before the run: none has to wait on the host for its turn behind a long task.
        schedule.order.sort_by_key(|task| !matches!(self.tasks.role(*task), Role::Input(_)));
        let (tasks, costs, curves) = (self.tasks.clone(), self.costs.clone(), self.curves.clone());
        Ok(Placed { tasks, costs, curves, placement, schedule, platform })
    }

    /// The problem that [`Self::place`] gives the strategies, in seconds.
    ///
    /// # Errors
    /// If some node can run nowhere.
    pub fn problem(&self, memory: &[u64]) -> Result<LoadedProblem, PlacingError> {
        let platform = self.platform(memory)?;
        let table = table(&self.tasks, &platform, &self.costs, &self.curves)?;
        let problem = Problem::new(self.tasks.graph(), &platform, &table, MemoryRule::Resident)?;
        let loaded = LoadedProblem::copy_of("program", &problem);
        Ok(LoadedProblem { facts: Facts { time_unit: Some("s".into()), ..Facts::default() }, ..loaded })
    }

    /// What a scheduler at run time goes by: predicted times of nodes, where pins let them run, and of transfers.
    pub fn forecast(&self) -> Forecast {
        let at = |node: usize, device: usize| {
            let pinned = self.tasks.graph().task(self.tasks.task(NodeId(node as u32))).pinned;
            let open = pinned.is_none_or(|pin| pin.index() == device);
            self.costs[node][device].filter(|_| open).map(|cost| cost.seconds)
        };
        let targets = 0..self.targets.len();
        let nodes = (0..self.costs.len()).map(|node| targets.clone().map(|device| at(node, device)).collect());
        Forecast { nodes: nodes.collect(), links: self.curves.clone() }
    }

    /// The costs that it predicts from.
    pub(super) fn known(&self) -> &'a MachineCosts {
        self.known
    }

    fn platform(&self, memory: &[u64]) -> Result<Platform, PlacingError> {
        let speed = |device: usize| {
            // Ranks that want one figure a device get its mean rate over the nodes that it can run.
            let costs = self.costs.iter().zip(&self.program.nodes);
            let (flops, seconds) = costs.fold((1.0, 1e-9), |(flops, seconds), (costs, node)| match costs[device] {
                Some(cost) => (flops + node.spec.work().flops, seconds + cost.seconds),
                None => (flops, seconds),
            });
            flops / seconds
        };
        let devices = self.targets.iter().zip(memory).enumerate().map(|(index, (target, bytes))| {
            Device::new(&target.name, target.kind).with_memory(*bytes).with_speed(speed(index))
        });
        let affine = |from: DeviceId, to: DeviceId| {
            let link = link(self.known, &self.targets[from.index()], &self.targets[to.index()]);
            (link.latency, link.rate)
        };
        Ok(Platform::new(devices.collect(), affine)?)
    }
}

/// Seconds of each task on each device, and of transfers.
fn table<'g>(
    tasks: &'g ProgramTasks,
    platform: &'g Platform,
    costs: &[Vec<Option<NodeCost>>],
    curves: &[Vec<TransferCurve>],
) -> Result<CostTable<'g>, CostError> {
    let table = CostTable::from_fn(tasks.graph(), platform, |task, device| match tasks.role(task) {
        Role::Node(node) => costs[node.index()][device.index()].map(|cost| cost.seconds),
        Role::Input(_) | Role::Output(_) => Some(0.0),
    })?;
    Ok(table.with_links(|from, to| curves[from.index()][to.index()].clone()))
}

/// The link between two devices as measured; else assumed: between CPU devices only a message and cache misses, else a bus of
/// 10 GB/s.
pub(super) fn link(known: &MachineCosts, from: &Target, to: &Target) -> LinkCosts {
    let assumed = || match (from.kind, to.kind) {
        (DeviceKind::Cpu, DeviceKind::Cpu) => LinkCosts::affine(5e-6, 4e10),
        _ => LinkCosts::affine(3e-5, 1e10),
    };
    known.links.get(&MachineCosts::link_key(&from.key, &to.key)).cloned().unwrap_or_else(assumed)
}

/// Bytes of the constants that a node reads.
fn resident(program: &Program, node: NodeId) -> u64 {
    let inputs = &program.node(node).inputs;
    inputs.iter().filter_map(|input| program.constant(*input)).map(|constant| constant.bytes() as u64).sum()
}

fn pins(
    program: &Program,
    targets: &[Target],
    pins: &[(String, String)],
) -> Result<Vec<Option<DeviceId>>, PlacingError> {
    let mut pinned = vec![None; program.nodes.len()];
    for (pattern, device) in pins.iter().rev() {
        let position = targets.iter().position(|target| target.name == *device);
        let position = position.ok_or_else(|| PlacingError::UnknownDevice {
            pattern: pattern.clone(),
            device: device.clone(),
            known: targets.iter().map(|t| t.name.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        for node in matching(program, pattern)? {
            pinned[node.index()] = Some(DeviceId(position as u32));
        }
    }
    Ok(pinned)
}

fn colocated(program: &Program, patterns: &[String]) -> Result<Vec<(NodeId, NodeId)>, PlacingError> {
    let mut pairs = Vec::new();
    for pattern in patterns {
        let nodes = matching(program, pattern)?;
        pairs.extend(nodes.windows(2).map(|pair| (pair[0], pair[1])));
    }
    Ok(pairs)
}

/// The nodes one of whose operators' names matches.
fn matching(program: &Program, pattern: &str) -> Result<Vec<NodeId>, PlacingError> {
    let named = |node: &NodeId| {
        let node = program.node(*node);
        pattern::matches(pattern, &node.name) || node.operators.iter().any(|name| pattern::matches(pattern, name))
    };
    let nodes: Vec<_> = program.node_ids().filter(named).collect();
    if nodes.is_empty() {
        return Err(PlacingError::NoMatch { pattern: pattern.to_owned() });
    }
    Ok(nodes)
}
