//! Memory that a session holds on each device: the sum over its prepared plans, in which shared memory counts once.
//!
//! A plan is charged before memory is allocated for it, and its charge ends when it is dropped. If a charge does not
//! fit, idle plans are dropped until it fits. While other callers run, whose plans may become idle, the charge waits. A
//! charge does not wait for callers that wait themselves, so that the last caller learns that memory is short.

use super::error::SharedShortage;
use anabranch_base::lock::lock;
use anabranch_execute::Deadline;
use anabranch_ir::constant::Identity;
use anabranch_kernels::cpu::Layout;
use anabranch_planning::{MachineDevice, Planned};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Number of further checks of a caller that finds all others waiting, and the time between them. A caller whose plan
/// has just been made counts as waiting until it is awake.
const PATIENCE: u32 = 20;
const MOMENT: Duration = Duration::from_millis(20);

/// Devices with their limits, and the memory that is charged to them.
pub(super) struct Budget {
    devices: Vec<MachineDevice>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    /// Bytes held on each device.
    held: Vec<u64>,
    shared: BTreeMap<Form, usize>,
    /// Callers that may hold plans temporarily.
    active: usize,
    /// Callers among them that wait for memory.
    waiting: usize,
    /// Callers among them that sleep until something changes.
    asleep: usize,
}

/// A constant in the form that plans share on a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    /// Index of the device.
    pub(super) device: usize,
    pub(super) constant: Identity,
    /// Layout of a kernel; `None` for the constant's own layout.
    pub(super) layout: Option<Layout>,
}

/// Memory that a plan needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    /// Bytes that the plan shares with no other plan, by device.
    pub(super) own: Vec<u64>,
    /// Forms that the plan shares, with their bytes.
    pub(super) shared: BTreeMap<Form, u64>,
}

/// Memory charged for a plan, as long as this lives.
pub struct Charge {
    budget: Arc<Budget>,
    demand: Demand,
}

/// A caller that is counted until this is dropped.
pub(super) struct Counted<'a> {
    budget: &'a Budget,
    count: fn(&mut State) -> &mut usize,
}

impl Demand {
    /// Returns the memory that a plan needs on each device.
    pub(super) fn of(planned: &Planned) -> Self {
        let mut demand = Self::default();
        demand.add(planned, &(0..planned.plan().devices().len()).collect::<Vec<_>>());
        demand
    }

    /// Adds a plan whose devices are, or are parts of, these devices of the session.
    pub(super) fn add(&mut self, planned: &Planned, homes: &[usize]) {
        for (memory, device) in planned.plan().memory().devices().iter().zip(homes.iter().copied()) {
            let shared = memory.shared.iter().filter_map(|shared| {
                let constant = planned.program.constant(shared.value)?.identity().clone();
                Some((Form { device, constant, layout: shared.layout.clone() }, shared.bytes))
            });
            self.shared.extend(shared);
            let shared: u64 = memory.shared.iter().map(|shared| shared.bytes).sum();
            self.take(device, memory.peak().saturating_sub(shared));
        }
    }

    /// Adds bytes of a device that are shared with no plan.
    pub(super) fn take(&mut self, device: usize, bytes: u64) {
        self.own.resize(self.own.len().max(device + 1), 0);
        self.own[device] = self.own[device].saturating_add(bytes);
    }

    /// Returns the bytes of each device.
    pub(super) fn bytes(&self, devices: usize) -> Vec<u64> {
        let mut bytes = self.own.clone();
        bytes.resize(devices, 0);
        self.shared.iter().for_each(|(form, shared)| bytes[form.device] = bytes[form.device].saturating_add(*shared));
        bytes
    }
}

impl Budget {
    /// Creates a budget without charges.
    pub(super) fn new(devices: Vec<MachineDevice>) -> Arc<Self> {
        let state = State { held: vec![0; devices.len()], ..State::default() };
        Arc::new(Self { devices, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Returns the bytes charged to each device.
    pub(super) fn held(&self) -> Vec<u64> {
        lock(&self.state).held.clone()
    }

    /// Counts a caller that may hold a plan, until the result is dropped.
    pub(super) fn enter(&self) -> Counted<'_> {
        self.count(|state| &mut state.active)
    }

    /// Counts an active caller as waiting for another caller, until the result is dropped.
    pub(super) fn pause(&self) -> Counted<'_> {
        self.count(|state| &mut state.waiting)
    }

    /// Returns the number of active callers that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.state).waiting
    }

    fn count(&self, count: fn(&mut State) -> &mut usize) -> Counted<'_> {
        let mut state = lock(&self.state);
        *count(&mut state) += 1;
        self.tell(state);
        Counted { budget: self, count }
    }

    /// Charges a plan's memory. `make_room` drops an idle plan, if there is one.
    ///
    /// # Errors
    /// If the memory does not fit next to plans in use, by the end of the caller's time.
    pub(super) fn charge(
        self: &Arc<Self>,
        demand: Demand,
        make_room: impl Fn() -> bool,
        deadline: &Deadline<'_>,
    ) -> Result<Charge, SharedShortage> {
        let mut patience = PATIENCE;
        loop {
            let Some(shortage) = self.try_charge(&demand) else {
                return Ok(Charge { budget: Arc::clone(self), demand });
            };
            if deadline.verdict().is_some() {
                return Err(shortage);
            }
            if make_room() || self.wait_for_others(&demand, deadline) {
                patience = PATIENCE;
                continue;
            }
            // Another caller may be about to continue with a plan for which it waited, and leave it idle afterwards.
            if patience == 0 || !self.wait_a_moment() {
                return Err(shortage);
            }
            patience -= 1;
        }
    }

    /// Charges a plan's memory, or returns the shortage.
    fn try_charge(&self, demand: &Demand) -> Option<SharedShortage> {
        let mut state = lock(&self.state);
        let after = state.with(demand);
        let short = after.iter().zip(&self.devices).position(|(bytes, device)| !device.memory.admits(*bytes));
        if let Some(device) = short {
            let MachineDevice { name, memory, .. } = &self.devices[device];
            let held = state.held[device];
            return Some(SharedShortage {
                device: name.clone(),
                needed: after[device] - held,
                held,
                limit: memory.or_all(),
            });
        }
        state.held = after;
        for form in demand.shared.keys() {
            *state.shared.entry(form.clone()).or_default() += 1;
        }
        None
    }

    /// Waits until another caller has left or freed memory, or the clock must be checked; `false` if all others wait,
    /// too.
    fn wait_for_others(&self, demand: &Demand, deadline: &Deadline<'_>) -> bool {
        let mut state = lock(&self.state);
        if self.fits(&state.with(demand)) {
            return true;
        }
        state.waiting += 1;
        let others = state.active > state.waiting;
        if others {
            state.asleep += 1;
            state = match deadline.sleep() {
                Some(most) => self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.asleep -= 1;
        }
        state.waiting -= 1;
        others
    }

    /// Waits for a moment if there are other callers.
    fn wait_a_moment(&self) -> bool {
        let mut state = lock(&self.state);
        let others = state.active > 1;
        if others {
            state.asleep += 1;
            state = self.changed.wait_timeout(state, MOMENT).unwrap_or_else(PoisonError::into_inner).0;
            state.asleep -= 1;
        }
        others
    }

    /// Wakes sleeping callers after a change. This is a system call, so that it is made only if a caller sleeps.
    fn tell(&self, state: MutexGuard<'_, State>) {
        if state.asleep > 0 {
            drop(state);
            self.changed.notify_all();
        }
    }

    fn fits(&self, bytes: &[u64]) -> bool {
        bytes.iter().zip(&self.devices).all(|(bytes, device)| device.memory.admits(*bytes))
    }

    fn give_back(&self, demand: &Demand) {
        let mut state = lock(&self.state);
        for (held, own) in state.held.iter_mut().zip(&demand.own) {
            *held -= own;
        }
        for (form, bytes) in &demand.shared {
            let users = state.shared.get_mut(form).map(|users| {
                *users -= 1;
                *users
            });
            if users == Some(0) {
                state.shared.remove(form);
                state.held[form.device] -= bytes;
            }
        }
        self.tell(state);
    }
}

impl State {
    /// Returns the bytes that each device would hold with one more plan.
    fn with(&self, demand: &Demand) -> Vec<u64> {
        let mut after = self.held.clone();
        for (after, own) in after.iter_mut().zip(&demand.own) {
            *after = after.saturating_add(*own);
        }
        for (form, bytes) in demand.shared.iter().filter(|(form, _)| !self.shared.contains_key(form)) {
            after[form.device] = after[form.device].saturating_add(*bytes);
        }
        after
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(&self.demand);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.budget.state);
        *(self.count)(&mut state) -= 1;
        self.budget.tell(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_execute::{CancelToken, RunOptions};
    use anabranch_plan::test_programs::cpu_device;
    use std::thread;
    use std::time::Instant;

    /// A budget of 10 bytes.
    fn budget() -> Arc<Budget> {
        Budget::new(vec![MachineDevice { memory: 10.into(), ..cpu_device("cpu0") }])
    }

    fn demand(bytes: u64) -> Demand {
        Demand { own: vec![bytes], ..Demand::default() }
    }

    #[test]
    fn the_limit_holds_for_the_sum_and_memory_comes_back() {
        let budget = budget();
        let first = budget.charge(demand(6), || false, &Deadline::none()).expect("there is room");
        let shortage = budget.charge(demand(5), || false, &Deadline::none()).err().expect("1 byte is missing");
        assert_eq!((shortage.held, shortage.needed, shortage.limit), (6, 5, 10));
        let second = budget.charge(demand(4), || false, &Deadline::none()).expect("exactly as much as there is");
        drop(first);
        assert_eq!(budget.held(), [4]);
        drop(second);
        assert_eq!(budget.held(), [0]);
    }

    #[test]
    fn who_waits_for_memory_looks_at_its_clock_and_its_token() {
        let budget = budget();
        let (_kept, _other) = (budget.charge(demand(10), || false, &Deadline::none()), budget.enter());
        let token = CancelToken::new();
        let clock = RunOptions::default().with_timeout(Duration::from_millis(20));
        let by_token = RunOptions::default().with_cancel(token.clone());
        thread::scope(|scope| {
            for options in [&clock, &by_token] {
                let budget = &budget;
                scope.spawn(move || {
                    let _active = budget.enter();
                    let deadline = Deadline::new(options, Instant::now());
                    assert!(budget.charge(demand(1), || false, &deadline).is_err() && deadline.verdict().is_some());
                });
            }
            thread::sleep(Duration::from_millis(30));
            token.cancel();
        });
    }

    #[test]
    fn who_waits_for_a_plan_does_not_keep_its_maker_waiting_for_memory() {
        let budget = budget();
        let _kept = budget.charge(demand(10), || false, &Deadline::none()).expect("there is room");
        let _other = budget.enter();
        let maker = thread::scope(|scope| {
            let maker = scope.spawn(|| {
                let _active = budget.enter();
                budget.charge(demand(1), || false, &Deadline::none()).is_err()
            });
            while budget.waiting() == 0 {
                thread::yield_now();
            }
            let _paused = budget.pause();
            maker.join()
        });
        assert!(maker.expect("no panic"), "there is no room, and nobody who could make some");
    }
}
