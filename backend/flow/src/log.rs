//! Logs of workers, and the report that is made of them.

use super::engine::{Engine, Node};
use super::error::FlowError;
use super::report::{FlowEvent, FlowReport, NodeReport, Traffic, WorkerReport};
use anabranch_base::lock::lock;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Log of one worker.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) worker: u32,
    pub(super) tally: WorkerReport,
    pub(super) traffic: Traffic,
    pub(super) events: Vec<FlowEvent>,
    /// Whether events were left out.
    pub(super) is_cut: bool,
    /// Operands and nanoseconds, by node; empty if the run is not profiled.
    pub(super) times: Vec<(u64, u64)>,
}

impl Engine<'_, '_> {
    /// Returns the report of a run that took `time`, or its failure.
    pub(super) fn report(&self, mut logs: Vec<Log>, time: Duration) -> Result<FlowReport, FlowError> {
        if let Some(failure) = lock(&self.failure).take() {
            return Err(failure);
        }
        self.verify_sources()?;
        logs.sort_by_key(|log| log.worker);
        let is_local = self.options.scheduler.is_local();
        let times = |number: usize| logs.iter().filter_map(move |log| log.times.get(number)).copied();
        let node = |(number, node): (usize, &Node<'_>)| NodeReport {
            name: node.name.clone(),
            machine: is_local.then_some(node.machine),
            operands: times(number).map(|(operands, _)| operands).sum(),
            busy_ns: times(number).map(|(_, busy)| busy).sum(),
        };
        let mut traffic = Traffic::default();
        logs.iter().for_each(|log| traffic.join(log.traffic));
        let mut events: Vec<FlowEvent> = logs.iter().flat_map(|log| log.events.iter().copied()).collect();
        events.sort_by_key(|event| (event.start, event.worker));
        Ok(FlowReport {
            iterations: self.matching.total(),
            time,
            workers: logs.iter().map(|log| log.tally).collect(),
            nodes: self.nodes.iter().enumerate().map(node).collect(),
            traffic,
            events,
            is_cut: logs.iter().any(|log| log.is_cut),
        })
    }

    /// Checks that all sources had the same number of items.
    fn verify_sources(&self) -> Result<(), FlowError> {
        let counts = || self.nodes.iter().filter_map(|node| Some((node, node.items.as_ref()?.load(Ordering::Relaxed))));
        let (Some((first, items)), Some((other, more))) =
            (counts().min_by_key(|(_, items)| *items), counts().max_by_key(|(_, items)| *items))
        else {
            return Ok(());
        };
        match items == more {
            true => Ok(()),
            false => Err(FlowError::Uneven { ended: first.name.clone(), items, other: other.name.clone(), more }),
        }
    }
}
