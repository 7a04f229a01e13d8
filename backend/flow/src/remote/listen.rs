//! Receives messages from peers. Every message is checked before it is acted on: no message can cause a panic, or use
//! more memory than the run does anyway.

use super::super::engine::{Engine, Node};
use super::super::error::FlowError;
use super::super::queues::Task;
use super::post::{Ear, Head, Kind, is_gone};
use super::{Control, RemoteProcesses, Share, workers_of};
use anabranch_base::lock::lock;
use anabranch_kernels::panic_text;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Most that any number in a report may be: more than the tasks, bytes or nanoseconds of any run, and small enough to
/// add many of them.
pub(super) const MOST: u64 = 1 << 48;

/// Messages received from a peer.
#[derive(Default)]
struct Heard {
    /// By kind, node, port and slot: iteration of the last message.
    last: BTreeMap<(u8, u32, u32, u32), u64>,
    ready: Vec<Task>,
}

/// Reason why a message is not valid.
type Refusal = String;

impl Heard {
    /// Whether this is the first such message in its iteration.
    fn is_new(&mut self, head: Head) -> bool {
        // An operand and its absence exclude each other.
        let kind = if head.kind == Kind::Dropped { Kind::Operand } else { head.kind };
        let last = self.last.insert((kind as u8, head.node, head.port, head.slot), head.iteration);
        last.is_none_or(|last| last < head.iteration)
    }
}

impl Engine<'_, '_> {
    /// Handles a peer's messages until the last.
    pub(super) fn listen(&self, remote: &RemoteProcesses, peer: u32) {
        let heard = catch_unwind(AssertUnwindSafe(|| self.hear_all(remote, peer)));
        let reason = match heard {
            Ok(Ok(())) => return,
            Ok(Err(reason)) => reason,
            Err(payload) => panic_text(&*payload).unwrap_or("a panic without a message").to_owned(),
        };
        self.fail(FlowError::Machine { machine: peer, reason });
    }

    fn hear_all(&self, remote: &RemoteProcesses, peer: u32) -> Result<(), Refusal> {
        let stop = || self.is_cancelled();
        let Some(mut ear) = remote.post.listen(peer, &stop) else { return Ok(()) };
        let (mut heard, mut content) = (Heard::default(), Vec::new());
        while let Some(head) = self.hear(peer, &mut ear, &mut content)? {
            if head.kind == Kind::Control {
                let control = serde_json::from_slice(&content)
                    .map_err(|error| format!("its last message is invalid: {error}"))?;
                return self.obey(remote, peer, control);
            }
            self.take(remote, peer, head, &content, &mut heard).ok_or_else(|| self.senseless(head))?;
            self.share_all(&mut heard.ready);
        }
        // Other processes report to the leader, which sees for itself which peer has gone.
        if remote.leads() || peer == 0 { Err(self.hung_up(remote, peer)) } else { Ok(()) }
    }

    /// Returns the next message; `None` once the peer has gone or the run is cancelled.
    pub(super) fn hear(&self, peer: u32, ear: &mut Ear<'_>, content: &mut Vec<u8>) -> Result<Option<Head>, Refusal> {
        match ear.next(content) {
            Ok(head) => Ok(head),
            Err(error) if is_gone(&error) || self.is_cancelled() => Ok(None),
            Err(error) => Err(format!("{error}; the connection to machine {peer} is closed")),
        }
    }

    /// Returns the reason why a message is rejected.
    pub(super) fn senseless(&self, head: Head) -> Refusal {
        let name = self.nodes.get(head.node as usize).map_or("none", |node| &node.name);
        let Head { kind, node, port, slot, iteration } = head;
        format!(
            "its message is unexpected ({kind:?}, node {node} {name:?}, port {port}, slot {slot}, iteration \
             {iteration})"
        )
    }

    /// Returns the error of a lost peer: its machine, and the node that it ran or was to run.
    pub(super) fn hung_up(&self, remote: &RemoteProcesses, peer: u32) -> Refusal {
        let running =
            workers_of(self.options.worker_config(), peer).filter_map(|worker| remote.desks[worker as usize].task());
        let running: Vec<&str> = running.map(|task| self.nodes[task.node as usize].name.as_str()).collect();
        let own = || self.nodes.iter().filter(|node| node.machine == peer);
        match (running.first(), own().next()) {
            (Some(node), _) => format!("it disconnected while it ran node {node:?}"),
            (None, Some(node)) if self.options.scheduler.is_local() => {
                let more = own().count() - 1;
                format!("it disconnected before the end of the run; it had to run node {:?} and {more} more", node.name)
            }
            _ => "it disconnected before the end of the run".to_owned(),
        }
    }

    /// Handles a message; `None` if it is not valid.
    fn take(&self, remote: &RemoteProcesses, peer: u32, head: Head, content: &[u8], heard: &mut Heard) -> Option<()> {
        let Head { kind, slot, iteration, .. } = head;
        if remote.is_central {
            return self.take_result(remote, peer, head, content);
        }
        let is_known = (slot as usize) < self.matching.window();
        let current = if is_known { self.matching.iteration(slot) } else { return None };
        // The leader has announced the iteration of a slot before any message about it. Other processes may not have
        // received the announcement yet.
        let is_due = if remote.leads() { iteration == current } else { iteration >= current };
        match kind {
            Kind::Operand | Kind::Dropped if is_due => {
                let node = self.nodes.get(head.node as usize).filter(|node| remote.is_own(node.machine))?;
                let input = node.inputs.get(head.port as usize)?;
                let is_theirs = self.nodes[input.producer].machine == peer && heard.is_new(head);
                let is_dropped = kind == Kind::Dropped;
                if !is_theirs || !is_dropped && !input.line.land(slot as usize, content) {
                    return None;
                }
                self.matching.note(slot, iteration);
                self.arrive(Task { node: head.node, slot }, is_dropped, &mut heard.ready);
            }
            Kind::Begin if peer == 0 && is_due && heard.is_new(Head::of(kind, slot, iteration)) => {
                self.matching.note(slot, iteration);
                self.begin_roots(slot, &mut heard.ready);
            }
            Kind::Finished if remote.leads() && is_due && heard.is_new(Head::of(kind, slot, iteration)) => {
                remote.ends[peer as usize].then(|| self.finish(slot, &mut heard.ready))?;
            }
            Kind::Ended if remote.leads() && self.nodes.iter().any(|node| is_source(node, peer)) => {
                self.end_source(iteration)
            }
            _ => return None,
        }
        Some(())
    }

    /// Handles a peer's control message at the end.
    pub(super) fn obey(&self, remote: &RemoteProcesses, peer: u32, control: Control) -> Result<(), Refusal> {
        match control {
            Control::Done { iterations } if peer == 0 => {
                self.matching.end(iterations);
                self.end();
                Ok(())
            }
            Control::Share(share) if remote.leads() && self.is_over() && self.is_sound(remote, peer, &share) => {
                lock(&remote.shares).push(share);
                Ok(())
            }
            Control::Failed { reason } if remote.leads() => Err(reason),
            _ => Err("its last message is unexpected".to_owned()),
        }
    }

    /// Whether a peer's share can be part of the report.
    fn is_sound(&self, remote: &RemoteProcesses, peer: u32, share: &Share) -> bool {
        let mut workers: Vec<u32> = share.logs.iter().map(|log| log.worker).collect();
        workers.sort_unstable();
        let own = workers_of(self.options.worker_config(), peer).filter(|_| !remote.is_central);
        let nodes = self.nodes.len();
        let are_small = |numbers: &[u64]| numbers.iter().all(|number| *number < MOST);
        let are_logs = share.logs.iter().all(|log| {
            let tally = log.tally;
            tally.machine == peer
                && are_small(&[tally.tasks, tally.stolen, tally.sleeps, tally.busy_ns])
                && log.times.len() <= nodes
                && log.times.iter().all(|(operands, busy)| are_small(&[*operands, *busy]))
                && log.events.iter().all(|event| {
                    (event.node as usize) < nodes
                        && event.worker == log.worker
                        && event.start <= event.end
                        && are_small(&[event.end, event.iteration])
                })
        });
        let are_items = share.items.iter().all(|(node, _)| {
            !remote.is_central && self.nodes.get(*node as usize).is_some_and(|node| is_source(node, peer))
        });
        workers.into_iter().eq(own) && are_logs && are_items
    }
}

/// Whether a node is a source of a machine.
fn is_source(node: &Node<'_>, machine: u32) -> bool {
    node.machine == machine && node.items.is_some()
}
