//! Rows of a batch divided among devices: the same nodes on several devices, each for its own rows.
//!
//! A division is a rewrite of the lowered program. [`Rows`] proves that each row of the outputs depends on the same row
//! of the inputs only; [`divided`](divided::divided) repeats the nodes for each part; then the program is placed,
//! planned, predicted and run like any other. Constants exist once, so that parts on one kind of memory share them.

mod bits;
mod divided;
mod layout;
mod parts;
mod request;
mod rows;
mod rules;
#[cfg(test)]
mod tests;

pub use request::{Parts, Split};

use super::choosing::Contest;
use super::constraints::Constraints;
use super::error::PlanningError;
use super::fitting::Planner;
use super::planned::{Lowered, Planned};
use super::request::{PlacementRequest, PlanChoice};
use super::strategy::Strategy;
use anabranch_base::count::count;
use anabranch_base::error_kind::ErrorKind;
use anabranch_ir::program::{Program, ValueId};
use anabranch_kernels::op::Op;
use anabranch_placement_core::place::Reason;
use anabranch_placement_core::platform::{DeviceId, DeviceKind};
use anabranch_plan::HOST;
use divided::{Divided, Part, Role};
use layout::Layout;
use rows::Rows;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A program whose batch is divided, and the division.
pub struct DividedBatch {
    /// The program that computes all parts.
    pub lowered: Lowered,
    /// Names of the devices, and the number of consecutive rows of each, in the order of the rows.
    pub parts: Vec<(String, usize)>,
}

impl Planner<'_> {
    /// Places and plans with the rows of the batch divided as `split` says.
    ///
    /// If the parts are chosen here, [`Strategy::AUTO`] also considers a plan that divides nothing. A plan file must be
    /// for a program with these parts. Other strategies have nothing to decide.
    pub(super) fn split(&self, split: &Split, choice: &PlanChoice) -> Result<Planned, PlanningError> {
        self.may_split()?;
        let rows = self.rows(split)?;
        let assignments = match &split.parts {
            Parts::Given(parts) => vec![self.assigned(parts, &rows)?],
            Parts::Auto => self.promising_parts(&rows)?,
        };
        let mut contest = Contest::default();
        for assignment in &assignments {
            contest.enter(&request::shown(assignment), self.with_parts(&rows, assignment, choice))?;
        }
        if split.parts == Parts::Auto {
            self.enter_neighbours(&rows, choice, &mut contest)?;
            if choice.strategy == Strategy::AUTO {
                let constraints = self.constraints.undivided();
                contest.enter("one part", Planner { constraints: &constraints, ..*self }.plan(choice))?;
            }
        }
        let planned = contest.winner()?;
        Ok(match split.parts {
            Parts::Auto => planned,
            Parts::Given(_) => Planned { candidates: Vec::new(), ..planned },
        })
    }

    /// Returns the planner of the program of a plan: the divided program, if it divides the batch.
    pub fn of<'p>(&self, planned: &'p Planned) -> Planner<'p>
    where
        Self: 'p,
    {
        let lowered = planned.divided.as_ref().map_or(self.lowered, |divided| &divided.lowered);
        Planner { lowered, ..*self }
    }

    /// Refuses constraints with which no batch can be divided.
    fn may_split(&self) -> Result<(), PlanningError> {
        let Constraints { pins, colocated, resident, .. } = self.constraints;
        if self.lowered.rest.is_some() {
            return Err(refused("the model's shapes depend on computed values; leave the split out"));
        }
        match (pins.is_empty() && colocated.is_empty(), resident.is_empty()) {
            (true, true) => Ok(()),
            (false, _) => Err(refused("nodes are pinned or colocated, but each part is on its own device")),
            (_, false) => Err(refused("an input or output stays on a device, but its rows are on several")),
        }
    }

    /// Proves that the program computes the rows of the batch independently.
    fn rows(&self, split: &Split) -> Result<Rows, PlanningError> {
        let program = &*self.lowered.program;
        let (batch, inputs) = batch_of(program, split)?;
        Rows::of(program, batch, &inputs).map_err(dependent)
    }

    /// Returns the devices of given parts.
    fn assigned(&self, parts: &[(String, usize)], rows: &Rows) -> Result<Vec<(String, usize)>, PlanningError> {
        let sum = parts.iter().fold(0usize, |sum, (_, rows)| sum.saturating_add(*rows));
        if sum != rows.batch {
            let (parts, batch) = (count(sum, "row"), rows.batch);
            return Err(refused(format!(
                "its parts have {parts} together, but the batch has {batch}; change the parts"
            )));
        }
        for (name, _) in parts {
            let Some(at) = self.machine.devices.iter().position(|device| device.name == *name) else {
                let known: Vec<_> = self.machine.devices.iter().map(|device| device.name.as_str()).collect();
                return Err(refused(format!("there is no device `{name}`; the devices are {}", known.join(", "))));
            };
            self.machine.has(std::iter::once(&DeviceId(at as u32)))?;
        }
        Ok(parts.iter().filter(|(_, rows)| *rows > 0).cloned().collect())
    }

    /// Plans with these parts.
    fn with_parts(
        &self,
        rows: &Rows,
        parts: &[(String, usize)],
        choice: &PlanChoice,
    ) -> Result<Planned, PlanningError> {
        let constraints = Constraints::default();
        let divided = match parts {
            [_] => None,
            _ => Some(self.divided(rows, parts)?),
        };
        let (lowered, device_of) = match &divided {
            Some((divided, device_of)) => (&divided.lowered, device_of.clone()),
            None => (self.lowered, self.on_one(&parts[0].0)),
        };
        let planner = Planner { lowered, machine: self.machine, constraints: &constraints };
        let request = match &choice.strategy {
            Strategy::PlanFile(_) => PlacementRequest::of(&lowered.program, self.machine, choice)?,
            _ => PlacementRequest::split(device_of, PART, choice.order),
        };
        let planned = planner.streamed(&request, choice)?;
        Ok(Planned { divided: divided.map(|(divided, _)| Arc::new(divided)), choice: choice.clone(), ..planned })
    }

    /// Returns the divided program, and the device of each of its nodes.
    fn divided<'p>(
        &self,
        rows: &Rows,
        parts: &'p [(String, usize)],
    ) -> Result<(DividedBatch, Vec<DeviceId>), PlanningError> {
        let program = &*self.lowered.program;
        let runs_whole = self.machine.gpu_runs(program);
        let part = |(name, count): &'p (String, usize)| {
            let kind = self.machine.devices[self.device(name).index()].kind;
            Part { name, rows: *count, paddings: bits::paddings(program, rows, *count, kind, &runs_whole) }
        };
        let named: Vec<_> = parts.iter().map(part).collect();
        let internal = || PlanningError::invalid("the rows of the batch were lost");
        let Divided { program, roles, whole } = divided::divided(program, rows, &named).ok_or_else(internal)?;
        let of_part = |part: usize| self.device(&parts[part].0);
        let largest = (0..parts.len()).max_by_key(|part| parts[*part].1).unwrap_or(0);
        let runs = self.machine.gpu_runs(&program);
        let device = |node: usize| {
            let device = match &roles[node] {
                Role::Part(part) => of_part(*part),
                // A GPU is sent its own rows only.
                Role::Slice(part) if self.is_cpu(of_part(*part)) => of_part(*part),
                Role::Shared => of_part(largest),
                Role::Slice(_) | Role::Joined => HOST,
            };
            let runs_whole = whole[node].is_none_or(|whole| runs_whole[whole]);
            match (runs_whole, runs[node]) {
                _ if self.is_cpu(device) => Ok(device),
                (true, true) => Ok(device),
                // The host would compute the node of the whole batch, and its kernels have other bits.
                (false, _) => Ok(HOST),
                (true, false) if whole[node].is_none() || is_moving(&program.nodes[node].spec.op) => Ok(HOST),
                (true, false) => {
                    let node = program.nodes[node].model_name();
                    Err(refused(format!("a GPU computes node `{node}` of the whole batch, but not of a part")))
                }
            }
        };
        let device_of = (0..program.nodes.len()).map(device).collect::<Result<_, _>>()?;
        let Lowered { weights, rest, .. } = self.lowered;
        let lowered = Lowered { program: Arc::new(program), weights: Arc::clone(weights), rest: rest.clone() };
        Ok((DividedBatch { lowered, parts: parts.to_vec() }, device_of))
    }

    /// Returns the device of each node if one device computes all rows.
    fn on_one(&self, name: &str) -> Vec<DeviceId> {
        let only = self.device(name);
        let runs = self.machine.gpu_runs(&self.lowered.program);
        runs.iter().map(|runs| if *runs || self.is_cpu(only) { only } else { HOST }).collect()
    }

    fn device(&self, name: &str) -> DeviceId {
        let found = self.machine.devices.iter().position(|device| device.name == name);
        DeviceId(found.unwrap_or(HOST.index()) as u32)
    }

    fn is_cpu(&self, device: DeviceId) -> bool {
        self.machine.devices[device.index()].kind == DeviceKind::Cpu
    }
}

impl Split {
    /// Checks that a strategy leaves the parts on their devices.
    ///
    /// # Errors
    /// If the strategy would place nodes.
    pub fn verify(&self, strategy: &Strategy) -> Result<(), PlanningError> {
        if strategy.may_divide() {
            return Ok(());
        }
        Err(refused(format!(
            "`{self}` decides the devices, so that `{strategy}` has nothing to place; leave the strategy out, or place \
             with `split`, `auto` or a plan file"
        )))
    }
}

/// Reason for the device of a part's node.
const PART: Reason = Reason::Rule("the rows of its part of the batch are computed there");

/// Returns the number of rows of the batch, and where they are in the inputs.
fn batch_of(program: &Program, split: &Split) -> Result<(usize, BTreeMap<ValueId, Layout>), PlanningError> {
    let (mut batch, mut inputs) = (None, BTreeMap::new());
    for (name, axis) in &split.axes {
        let Some(value) = program.inputs.iter().find(|input| program.value(**input).name == *name) else { continue };
        let dims = program.value(*value).spec.shape.dims();
        let Some(size) = dims.get(*axis).copied() else { continue };
        if *batch.get_or_insert(size) != size {
            let text = format!("`{}` has several sizes; name one input and axis, such as x[0]", split.dim);
            return Err(refused(text));
        }
        inputs.insert(*value, Layout::of_axis(dims, *axis));
    }
    let dim = &split.dim;
    match batch {
        Some(batch) if batch < 2 => {
            let rows = count(batch, "row");
            Err(refused(format!("`{dim}` has {rows}; run with more rows, or leave the split out")))
        }
        Some(_) if inputs.values().any(|layout| layout.inner == 0 || layout.outer == 0) => {
            Err(refused(format!("an input with the dimension `{dim}` has no elements; leave the split out")))
        }
        Some(batch) => Ok((batch, inputs)),
        None => {
            let known = if split.known.is_empty() { "x[0]".into() } else { split.known.join(", ") };
            Err(refused(format!("no input has a dimension `{dim}`; name one of {known}")))
        }
    }
}

/// Verifies that a program computes each row of these inputs by itself, and that all outputs have these rows. Rows are
/// along the first axis. O(edges × rank).
///
/// # Errors
/// The first node whose rows depend on each other, or the first output without such rows.
pub fn verify_rows(program: &Program, inputs: &[&str]) -> Result<(), PlanningError> {
    if let Some(name) = inputs.iter().find(|name| program.fixed.contains_key(**name)) {
        return Err(refused(format!("elements of input `{name}` decide shapes, so that it has no rows")));
    }
    let first = inputs.iter().map(|name| ((*name).to_owned(), 0)).collect();
    let split = Split { dim: "batch".into(), parts: Parts::Auto, axes: first, known: Vec::new() };
    let (batch, layouts) = batch_of(program, &split)?;
    let rows = Rows::of(program, batch, &layouts).map_err(dependent)?;
    for output in &program.outputs {
        let dims = output.spec.shape.dims();
        let leading = !dims.is_empty() && dims[0] == batch;
        if !leading || rows.values[output.value.index()] != Some(Layout::of_axis(dims, 0)) {
            return Err(refused(format!("output `{}` does not have a row for each row of the inputs", output.name)));
        }
    }
    Ok(())
}

/// Creates the error of a node whose rows depend on each other.
fn dependent(rows::Dependent { node, reason }: rows::Dependent) -> PlanningError {
    refused(format!("node `{node}` does not compute each row by itself: {reason}")).at_node(&node)
}

/// Whether an op only moves elements: every device gives the same bits.
fn is_moving(op: &Op) -> bool {
    matches!(op, Op::Transpose(_) | Op::Concat(_) | Op::Slice(_) | Op::Pad(_) | Op::Gather(_))
}

/// Creates the error of a batch that cannot be divided.
fn refused(reason: impl std::fmt::Display) -> PlanningError {
    PlanningError::new(ErrorKind::Constraint, format!("the batch cannot be divided: {reason}"))
}
