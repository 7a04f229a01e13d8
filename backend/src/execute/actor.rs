//! What all workers have in common: their life between runs, and their desk.

use super::engine::{Report, Shared};
use super::error::{Failure, Place};
use super::event::Event;
use super::message::{Halt, Mail, Message, Run};
use anabranch_kernels::Buffer;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A worker: a device or a link.
pub(super) trait Actor {
    /// Its desk.
    fn desk(&mut self) -> &mut Desk;

    /// Does all of its steps of one run.
    fn follow(&mut self, run: &Run) -> Result<(), Halt>;

    /// Takes a message of the current run, or of the next one from a worker that started earlier.
    fn receive(&mut self, message: Message) -> Result<(), Failure>;

    /// Prepares the next run; after one that `failed`, whatever was under way is lost.
    fn forget(&mut self, failed: bool);

    /// The outputs set aside for the caller.
    fn outputs(&mut self) -> Vec<(u32, Arc<Buffer>)> {
        Vec::new()
    }
}

/// What a worker hears, says and notes.
pub(super) struct Desk {
    pub(super) number: u32,
    pub(super) mail: Mail,
    pub(super) shared: Arc<Shared>,
    /// What it is at, for the report of a panic.
    pub(super) at: Place,
    profile: bool,
    events: Vec<Event>,
    /// A run failed, and messages of it may still come.
    spoiled: bool,
}

impl Desk {
    pub(super) fn new(number: u32, shared: Arc<Shared>, mail: Mail) -> Self {
        Self { number, mail, shared, at: Place::Nowhere, profile: false, events: Vec::new(), spoiled: false }
    }

    /// Whether events are noted in this run.
    pub(super) fn profiles(&self) -> bool {
        self.profile
    }

    /// Makes room for events, so that noting one takes no memory.
    pub(super) fn expect_events(&mut self, events: usize) {
        if self.profile {
            self.events.reserve(events);
        }
    }

    /// Notes an event, if events are noted.
    pub(super) fn note(&mut self, event: Event) {
        if self.profile {
            self.events.push(event);
        }
    }
}

/// Lives a worker's life: runs what it is told to until it is told to end.
pub(super) fn serve(mut actor: impl Actor) {
    while let Ok(message) = actor.desk().mail.inbox.recv() {
        match message {
            Message::Quit => return,
            Message::Wake => {}
            Message::Clear => {
                actor.forget(true);
                let desk = actor.desk();
                desk.spoiled = false;
                desk.events.clear();
                desk.shared.report(Report::idle(desk.number));
            }
            Message::Start(run) => attempt(&mut actor, &run),
            early => {
                if !actor.desk().spoiled && actor.receive(early).is_err() {
                    actor.desk().spoiled = true;
                }
            }
        }
    }
}

/// One run, and its report.
fn attempt(actor: &mut impl Actor, run: &Run) {
    actor.desk().profile = run.profile;
    actor.desk().at = Place::Nowhere;
    let result = match catch_unwind(AssertUnwindSafe(|| actor.follow(run))) {
        Ok(result) => result,
        Err(payload) => Err(Halt::Failed(Failure::panic(actor.desk().at, &*payload))),
    };
    let outputs = actor.outputs();
    if result.is_ok() {
        actor.forget(false);
    }
    let desk = actor.desk();
    desk.spoiled = result.is_err();
    desk.shared.report(Report { worker: desk.number, result, events: std::mem::take(&mut desk.events), outputs });
}
