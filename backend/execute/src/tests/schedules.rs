//! The executor under a model checker: runs in many interleavings of its threads. A deadlock, a lost wake-up, a wrong
//! result or a panic in any of them fails the test, and the checker prints the interleaving.
//!
//! `scripts/schedules` explores [`SCHEDULES`] interleavings, or as many as `ANABRANCH_SCHEDULES` says. Half of them are
//! random. The other half are by probabilistic concurrency testing (Burckhardt, Kothari, Musuvathi and Nagarakatte
//! 2010), which finds faults that need few preemptions. There are no clocks, sleeps may end early, and atomics are
//! sequentially consistent. Comments at the atomics argue why weaker orders suffice there.

use super::failures::{PANICS, REFUSES, WELL, bad};
use super::faults::{fail_at, refuse};
use super::runs::ladder;
use super::{devices, inputs, kernels, naive};
use crate::faults::Operation;
use crate::runner::LONG;
use crate::{CancelToken, DevicePool, ExecError, Executor, Kernels, RunOptions};
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::sync::{JoinHandle, thread};
use anabranch_kernels::Tensor;
use anabranch_plan::test_programs::PlacedProgram;
use anabranch_plan::{ChunkRule, Plan, PlanOptions, StreamMode};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Total number of interleavings that are explored.
const SCHEDULES: usize = 100_000;

/// Scenarios that share them, besides the scenario that ends at once.
const SCENARIOS: usize = 6;

/// Preemptions of a schedule by probabilistic concurrency testing.
const DEPTH: usize = 3;

/// Data that are equal in all schedules of a scenario.
struct Scene {
    placed: PlacedProgram,
    plan: Arc<Plan>,
    kernels: Arc<Kernels>,
    inputs: Vec<Tensor>,
    expected: Vec<Tensor>,
    /// Behaviour of one node.
    mood: Arc<AtomicU8>,
}

impl Scene {
    fn new(placed: PlacedProgram, options: &PlanOptions, bad_node: Option<u32>) -> Self {
        let (kernels, mood) = match bad_node {
            Some(node) => bad(&placed, node),
            None => (kernels(&placed.program), Arc::default()),
        };
        let plan = Arc::new(placed.plan_with(&*kernels, options).expect("no limits"));
        let inputs = inputs(&placed.program);
        let expected = naive::evaluate(&placed.program, &inputs);
        Self { placed, plan, kernels, inputs, expected, mood }
    }

    fn transfers() -> Self {
        Self::new(ladder(&["cpu", "cpu"], 1, &[4]), &PlanOptions::default(), None)
    }

    /// Three nodes on three devices that pass on two chunks each.
    fn gang(bad_node: Option<u32>) -> Self {
        let streaming = StreamMode::Always;
        let options = PlanOptions { streaming, chunk: ChunkRule::Rows(2), capacity: 2, ..PlanOptions::default() };
        Self::new(PlacedProgram::chain(&["cpu", "cpu", "cpu"], &[1, 0, 2], &[4, 3]), &options, bad_node)
    }

    /// A pool with an executor; created in each schedule, because its threads are the checker's.
    fn ready(&self) -> Executor {
        let pool = DevicePool::new(devices(&self.placed, 1));
        Executor::new(Arc::clone(&self.plan), Arc::clone(&self.kernels), &pool).expect("all devices are there")
    }

    fn run(&self, executor: &Executor, options: &RunOptions) -> Result<(), ExecError> {
        let output = executor.run(&self.inputs, options)?;
        let right = |(made, expected): (&Tensor, &Tensor)| made.same_bits(expected);
        assert!(output.outputs.iter().zip(&self.expected).all(right), "a wrong result");
        Ok(())
    }

    fn right(&self, executor: &Executor) {
        self.run(executor, &options()).expect("nothing fails");
    }
}

/// Starts a thread of the scenario.
fn start(work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::Builder::new().spawn(work).expect("the checker has threads")
}

/// Options without spinning; only wake-ups end a sleep.
fn options() -> RunOptions {
    let no = Duration::ZERO;
    RunOptions::default().with_spin(no).with_linger(no).with_stall_after(Duration::from_secs(3600))
}

/// Plays a scenario, on the result of `scene`, in its share of the schedules.
fn explore(scene: impl FnOnce() -> Scene, scenario: impl Fn(&Arc<Scene>) + Send + Sync + 'static) {
    let wanted = std::env::var("ANABRANCH_SCHEDULES").ok().map(|count| count.parse().expect("a number of schedules"));
    let each = wanted.unwrap_or(SCHEDULES).div_ceil(2 * SCENARIOS);
    let (scene, scenario) = (Arc::new(scene()), Arc::new(scenario));
    let schedulers: [Box<dyn Scheduler + Send>; 2] =
        [Box::new(RandomScheduler::new_from_seed(7, each)), Box::new(PctScheduler::new_from_seed(11, DEPTH, each))];
    for scheduler in schedulers {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        let (scene, scenario) = (Arc::clone(&scene), Arc::clone(&scenario));
        let explored = Runner::new(scheduler, config).run(move || scenario(&scene));
        assert_eq!(explored, each);
    }
}

#[test]
fn values_cross_in_every_order() {
    explore(Scene::transfers, |scene| {
        let executor = scene.ready();
        scene.right(&executor);
        scene.right(&executor);
    });
}

#[test]
fn gangs_come_to_their_end_in_every_order() {
    explore(|| Scene::gang(None), |scene| scene.right(&scene.ready()));
}

#[test]
fn failures_pass_in_every_order() {
    explore(
        || Scene::gang(Some(0)),
        |scene| {
            let executor = scene.ready();
            for ill in [REFUSES, PANICS] {
                scene.mood.store(ill, Ordering::Relaxed);
                let error = scene.run(&executor, &options()).expect_err("the kernel is bad");
                assert_eq!((error.kind, error.node.as_deref()), (ErrorKind::Kernel, Some("node0")));
                scene.mood.store(WELL, Ordering::Relaxed);
                scene.right(&executor);
            }
        },
    );
}

#[test]
fn cancellation_passes_in_every_order() {
    explore(
        || Scene::gang(None),
        |scene| {
            let (executor, token) = (scene.ready(), CancelToken::new());
            let own = token.clone();
            let canceller = start(move || own.cancel());
            match scene.run(&executor, &options().with_cancel(token)) {
                Ok(()) => {}
                Err(error) => assert_eq!(error.kind, ErrorKind::Cancelled),
            }
            canceller.join().expect("it only cancels");
            scene.right(&executor);
        },
    );
}

/// Three callers, one of which gives up at any time; the last to drop the executor ends its threads.
#[test]
fn callers_queue_in_every_order() {
    explore(Scene::transfers, |scene| {
        let (executor, token) = (Arc::new(scene.ready()), CancelToken::new());
        let caller = |options: RunOptions| {
            let (scene, executor) = (Arc::clone(scene), Arc::clone(&executor));
            start(move || match scene.run(&executor, &options) {
                Ok(()) => {}
                Err(error) => assert!(options.cancel.is_some() && error.kind == ErrorKind::Cancelled, "{error}"),
            })
        };
        let callers = [caller(options()), caller(options().with_cancel(token.clone())), caller(options())];
        drop(executor);
        token.cancel();
        callers.into_iter().for_each(|caller| caller.join().expect("it asserts nothing wrong"));
    });
}

/// Long runs of several callers, which the pool's runner thread executes.
#[test]
fn runs_of_the_runner_thread_end_in_every_order() {
    let scene = || Scene::new(PlacedProgram::chain(&["cpu"], &[0; 9], &[4]), &PlanOptions::default(), None);
    explore(scene, |scene| {
        assert!(scene.plan.predicted().makespan >= LONG);
        let executor = Arc::new(scene.ready());
        let caller = || {
            let (scene, executor) = (Arc::clone(scene), Arc::clone(&executor));
            start(move || scene.right(&executor))
        };
        let callers = [caller(), caller(), caller()];
        drop(executor);
        callers.into_iter().for_each(|caller| caller.join().expect("it asserts nothing wrong"));
    });
}

/// Checks that a lost message is found, so that the checker itself works.
#[test]
#[should_panic(expected = "deadlock")]
fn a_lost_message_is_a_deadlock() {
    explore(Scene::transfers, |scene| {
        let executor = scene.ready();
        fail_at(&executor, Operation::Message, 0, &refuse());
        scene.right(&executor);
    });
}
