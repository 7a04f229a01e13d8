//! The n-th operation of a run fails, for every n: the run succeeds or its error names the place, no data of it
//! remains, and the next run is right.

use super::runs::ladder;
use super::{assert_ended, assert_right, devices, executor_on, gpu, inputs, kernels};
pub(super) use crate::faults::fail_at;
use crate::faults::{Act, Operation, destroy};
use crate::{CancelToken, ComputeDevice, DevicePool, ExecError, Executor, GpuOpener, RunOptions};
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::sync::lock;
use anabranch_kernels::KernelError;
use anabranch_kernels::op::{Gather, Op, Precision};
use anabranch_placement_core::platform::DeviceId;
use anabranch_plan::test_programs::{Maker, PlacedProgram, add, relu};
use anabranch_plan::{ChunkRule, PlanOptions, Residency, StreamMode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Whether the fault has not happened yet; it is removed. A broken engine has met it.
fn spared(executor: &Executor) -> bool {
    lock(&executor.state).engine.as_ref().is_some_and(|engine| engine.channels.faults.disarm())
}

/// An error.
pub(super) fn refuse() -> Act {
    Arc::new(|_| Err(KernelError::Value { op: "fault", reason: "it was told to fail".into() }))
}

/// A panic without output.
fn panic() -> Act {
    Arc::new(|_| std::panic::resume_unwind(Box::new("it was told to panic")))
}

/// A stall until the run must be left.
fn hang() -> Act {
    Arc::new(|left| {
        while !left() {
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    })
}

/// A plan to be failed, and its description.
struct Case {
    what: &'static str,
    placed: PlacedProgram,
    options: PlanOptions,
}

/// One CPU, several CPUs with transfers and with streams, and a GPU with a CPU, with transfers, streams and staged
/// weights.
fn cases() -> Vec<Case> {
    let streamed = |rows| PlanOptions {
        streaming: StreamMode::Always,
        chunk: ChunkRule::Rows(rows),
        capacity: 2,
        ..PlanOptions::default()
    };
    let case = |what, placed, options| Case { what, placed, options };
    let mut cases = vec![
        case("one", PlacedProgram::chain(&["cpu"], &[0, 0, 0], &[6]), PlanOptions::default()),
        case("two", ladder(&["cpu", "cpu"], 2, &[6]), PlanOptions::default()),
        case("gang", PlacedProgram::chain(&["cpu", "cpu", "cpu"], &[1, 0, 2], &[20, 11]), streamed(7)),
    ];
    if gpu().is_some() {
        let staged = PlanOptions::default().with_weights(Residency::Within([(DeviceId(1), 0)].into()));
        cases.push(case("gpu", ladder(&["cpu", "gpu"], 2, &[9, 5]), PlanOptions::default()));
        cases.push(case("streams", PlacedProgram::chain(&["cpu", "gpu", "cpu"], &[0, 1, 2], &[20, 11]), streamed(11)));
        cases.push(case("staged", staged_weights(), staged));
        cases.push(case("status", chosen_rows(), PlanOptions::default()));
    }
    cases
}

/// Two layers of a GPU, each with a weight of its own.
fn staged_weights() -> PlacedProgram {
    let dims = [16, 8];
    let mut maker = Maker::new();
    let mut value = maker.input(&dims);
    for layer in 0..2 {
        let weight = maker.constant(&dims, |at| ((at * 7 + layer * 13) % 31) as f32 * 0.25 - 3.0);
        value = maker.node(add(), &[value, weight], &dims);
    }
    let last = maker.node(relu(), &[value], &dims);
    PlacedProgram::new(maker.finish(&[last]), &["cpu", "gpu"], &[1, 1, 0])
}

/// Rows of a GPU that data choose, with a status word.
fn chosen_rows() -> PlacedProgram {
    let mut maker = Maker::new();
    let (rows, chosen) = (maker.input(&[4, 3]), maker.integers(&[5]));
    let gathered = maker.node(Op::Gather(Gather { axis: 0, elementwise: false }), &[rows, chosen], &[5, 3]);
    let on_gpu = maker.node(relu(), &[gathered], &[5, 3]);
    let last = maker.node(relu(), &[on_gpu], &[5, 3]);
    PlacedProgram::new(maker.finish(&[last]), &["cpu", "gpu"], &[1, 1, 0])
}

/// A case's plan on its own pool, whose threads and devices have a common prefix in their names.
struct Ready {
    executor: Executor,
    pool: Arc<DevicePool>,
    prefix: String,
}

impl Ready {
    fn new(case: &Case) -> Self {
        Self::on(case, |device| device)
    }

    /// Prepares a case with a GPU that no other test uses.
    fn on_own_gpu(case: &Case) -> Self {
        let own =
            |opener: GpuOpener| GpuOpener::new(opener.name, super::adapter().expect("there is a GPU"), Precision::F32);
        Self::on(case, |device| match device {
            ComputeDevice::Gpu(opener) => ComputeDevice::Gpu(own(opener)),
            cpu @ ComputeDevice::Cpu(_) => cpu,
        })
    }

    fn on(case: &Case, device: impl Fn(ComputeDevice) -> ComputeDevice) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let prefix = format!("{}{}-", case.what, COUNT.fetch_add(1, Ordering::Relaxed));
        let mut placed = case.placed.clone();
        placed.devices.iter_mut().for_each(|device| device.name = format!("{prefix}{}", device.name));
        let pool = DevicePool::new(devices(&placed, 1).into_iter().map(device).collect());
        let executor = executor_on(&pool, &placed, kernels(&placed.program), &case.options);
        Self { executor, pool, prefix }
    }

    /// Runs and expects the right result.
    fn right(&self) {
        assert_right(&self.executor, &RunOptions::default());
    }

    fn run(&self, options: &RunOptions) -> Result<(), ExecError> {
        self.executor.run(&inputs(self.executor.program()), options).map(|_| ())
    }

    /// Drops everything, and checks that nothing remains.
    fn end(self) {
        let Self { executor, pool, prefix } = self;
        drop(executor);
        assert!(pool.held().iter().all(|bytes| *bytes == 0), "{prefix}: {:?}", pool.held());
        drop(pool);
        assert_ended(&prefix);
    }
}

/// Fails each operation of a kind in turn, until a run has fewer operations. Errors are passed to `verify`. Returns the
/// number of failed runs.
fn each(case: &Case, operation: Operation, act: &Act, options: &RunOptions, verify: impl Fn(&ExecError)) -> usize {
    let mut ready = Ready::new(case);
    ready.right();
    let held = ready.pool.held();
    let mut failed = 0;
    for n in 0.. {
        fail_at(&ready.executor, operation, n, act);
        let result = ready.run(options);
        let clean = spared(&ready.executor);
        match &result {
            Ok(()) if clean => {}
            // The last credits of a ring are meant for the next run, which would lack a buffer.
            Ok(()) if operation == Operation::Message => {
                ready.end();
                ready = Ready::new(case);
            }
            // At its last step a run does not check the clock any more.
            Ok(()) if options.timeout.is_some() => {}
            Ok(()) => panic!("{}: {operation:?} {n} failed and nobody heard of it", case.what),
            Err(error) => verify(error),
        }
        failed += usize::from(result.is_err());
        assert!(!ready.pool.is_taken());
        ready.right();
        assert_eq!(ready.pool.held(), held, "{}: after {operation:?} {n}", case.what);
        if clean {
            break;
        }
    }
    ready.end();
    failed
}

/// Checks that an error names the device, and the node that was running or that its value was for.
fn assert_named(error: &ExecError, case: &Case) {
    let named = error.node.as_ref().is_some_and(|node| node.starts_with("node"));
    let device = error.device.as_ref().is_some_and(|device| device.starts_with(case.what));
    assert!(named && device, "{}: {error:?}", case.what);
}

#[test]
fn whatever_operation_fails_is_named_and_passes() {
    for case in &cases() {
        let mut failed = [0; 3];
        let operations = [Operation::Kernel, Operation::Submission, Operation::Copy];
        for (failed, operation) in failed.iter_mut().zip(operations) {
            for act in [refuse(), panic()] {
                *failed += each(case, operation, &act, &RunOptions::default(), |error| {
                    assert_eq!(error.kind, ErrorKind::Kernel, "{error}");
                    assert!(error.to_string().contains("told to"), "{error}");
                    assert_named(error, case);
                });
            }
        }
        let has_gpu = ["gpu", "streams", "staged", "status"].contains(&case.what);
        assert!(failed[0] >= 2, "{}: {failed:?}", case.what);
        assert_eq!((failed[1] > 0, failed[2] > 0), (has_gpu, has_gpu), "{}: {failed:?}", case.what);
    }
}

#[test]
fn whatever_operation_hangs_is_left_by_the_clock() {
    let options = RunOptions::default().with_timeout(Duration::from_millis(30));
    for case in &cases() {
        for operation in [Operation::Kernel, Operation::Copy] {
            each(case, operation, &hang(), &options, |error| assert_eq!(error.kind, ErrorKind::Timeout, "{error}"));
        }
    }
}

#[test]
fn whatever_message_is_lost_the_run_stalls_with_its_graph() {
    let options = RunOptions::default().with_stall_after(Duration::from_millis(30));
    for case in &cases() {
        let failed = each(case, Operation::Message, &refuse(), &options, |error| {
            let text = error.to_string();
            assert_eq!(error.kind, ErrorKind::Internal, "{text}");
            assert!(text.contains("the run stalled: ") && text.contains(" waits at "), "{text}");
        });
        assert_eq!(failed > 0, case.what != "one", "{}: {failed} runs", case.what);
    }
}

/// Cancels from within the n-th operation, so that every place in a run is met, regardless of the machine's speed.
#[test]
fn a_run_is_cancelled_at_each_operation() {
    for case in &cases() {
        for operation in [Operation::Kernel, Operation::Submission, Operation::Copy, Operation::Message] {
            let ready = Ready::new(case);
            ready.right();
            let held = ready.pool.held();
            for n in 0.. {
                let token = CancelToken::new();
                let own = token.clone();
                let cancel: Act = Arc::new(move |_| {
                    own.cancel();
                    Ok(())
                });
                fail_at(&ready.executor, operation, n, &cancel);
                let result = ready.run(&RunOptions::default().with_cancel(token));
                let clean = spared(&ready.executor);
                // A worker that has finished its last step does not notice.
                assert!(matches!(result.map_err(|error| error.kind), Ok(()) | Err(ErrorKind::Cancelled)));
                ready.right();
                assert_eq!(ready.pool.held(), held);
                if clean {
                    break;
                }
            }
            ready.end();
        }
    }
}

/// Loses a GPU really at the n-th operation, and opens it again for the next run.
#[test]
fn a_gpu_lost_at_any_operation_is_named_and_opened_again() {
    let Some(_) = gpu() else { return };
    for case in &cases()[3..] {
        for operation in [Operation::Submission, Operation::Copy, Operation::Kernel] {
            let mut lost = 0;
            for n in 0.. {
                let ready = Ready::on_own_gpu(case);
                ready.right();
                let device = ready.pool.gpu(DeviceId(1)).expect("it is open");
                fail_at(&ready.executor, operation, n, &destroy(device));
                let first = ready.run(&RunOptions::default());
                let clean = spared(&ready.executor);
                // A run may not notice a loss at its end; the next run does.
                let result = first.and_then(|()| ready.run(&RunOptions::default()));
                if let Err(error) = &result {
                    assert_eq!(error.kind, ErrorKind::DeviceFailure, "{error}");
                    assert_eq!(error.device, Some(format!("{}gpu1", ready.prefix)), "{error}");
                    lost += 1;
                }
                ready.right();
                ready.end();
                if clean {
                    break;
                }
            }
            assert!(lost > 0, "{}: {operation:?}", case.what);
        }
    }
}
