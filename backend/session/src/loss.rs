//! Reaction of a session to the loss of a GPU: the run fails, or the model is placed again without the GPU.

use super::error::SessionError;
use super::open::Session;
use super::prepare::Prepared;
use anabranch_base::error_kind::ErrorKind;
use anabranch_base::lock::lock;
use anabranch_placement_core::platform::DeviceId;
use anabranch_planning::{PlanChoice, Strategy};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Behaviour of a run that loses a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDeviceLoss {
    /// The run fails and names the GPU. The next run opens the GPU again.
    #[default]
    Fail,
    /// The model is placed again on the remaining devices, and the run is repeated there, as are all later runs.
    ///
    /// The run fails only if that is impossible: a tensor or a pinned node must be on the GPU, or the remaining memory
    /// is too small. Applies to [`Session::run`](super::Session::run), [`run_into`](super::Session::run_into) and
    /// [`run_with`](super::Session::run_with). Callers that run their own plans use
    /// [`Session::outlasting`](super::Session::outlasting).
    Replace,
}

/// Names of the lost GPUs that a session no longer uses. The set only grows.
#[derive(Debug, Default)]
pub(super) struct Lost(Mutex<BTreeSet<String>>);

impl Lost {
    pub(super) fn names(&self) -> BTreeSet<String> {
        lock(&self.0).clone()
    }
}

impl Session {
    /// Returns the lost GPUs on which nothing is placed any more ([`OnDeviceLoss::Replace`]).
    pub fn lost_devices(&self) -> Vec<String> {
        self.lost.names().into_iter().collect()
    }

    /// Whether `error` is the loss of a GPU that the session stops using, as its options require.
    ///
    /// Plans made from now on are for the remaining devices, so that preparing the run again makes sense.
    pub fn replaces(&self, error: &SessionError) -> bool {
        if self.options.on_device_loss == OnDeviceLoss::Fail || error.kind() != ErrorKind::DeviceFailure {
            return false;
        }
        let gpu = self.inventory.gpus.iter().find(|gpu| error.device() == Some(&*gpu.name));
        let Some(gpu) = gpu else { return false };
        lock(&self.lost.0).insert(gpu.name.clone());
        let at = self.machine_devices.iter().position(|device| device.name == gpu.name);
        if let Some(device) = at.map(|at| DeviceId(at as u32)) {
            for plans in [&self.prepared, &self.later_prepared] {
                while plans.forget_one(|prepared| uses(prepared, device)).is_some() {}
            }
        }
        true
    }

    /// Calls `run`, and calls it again if it loses a GPU that the session can do without.
    ///
    /// This does for callers with their own plans what [`run`](Self::run) does. `run` must prepare its plan each time.
    /// A failure that is not the session's, and that another run would not mend, belongs into `T`.
    ///
    /// # Errors
    /// Errors of the last call of `run`.
    pub fn outlasting<T>(&self, mut run: impl FnMut() -> Result<T, SessionError>) -> Result<T, SessionError> {
        // Each GPU is lost once; plans that other callers made meanwhile may use it once more.
        for _ in 0..2 * self.inventory.gpus.len() {
            match run() {
                Err(error) if self.replaces(&error) => {}
                result => return result,
            }
        }
        run()
    }

    /// Returns the choice for plans on the remaining devices: a search replaces a strategy that needs a lost device.
    pub(super) fn choice_for_the_rest(&self) -> PlanChoice {
        let choice = self.options.choice();
        let bound =
            matches!(choice.strategy, Strategy::Device(_) | Strategy::PlanFile(_)) || choice.strategy == Strategy::GPU;
        match bound && !self.lost.names().is_empty() {
            true => PlanChoice { strategy: Strategy::AUTO, ..choice },
            false => choice,
        }
    }
}

/// Whether a plan has a node or a tensor of the caller on a device.
fn uses(prepared: &Prepared, device: DeviceId) -> bool {
    let (plan, program) = (prepared.plan(), &prepared.program);
    program.node_ids().any(|node| plan.device_of(node) == device)
        || (0..program.inputs.len()).any(|at| plan.input_device(at) == device)
        || (0..program.outputs.len()).any(|at| plan.output_device(at) == device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Inputs, Outputs, SessionConfig};
    use anabranch_device::CpuGranularity;
    use anabranch_execute::RunOptions;
    use anabranch_execute::lose_at_submission;

    const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/mlp.onnx");

    /// A configuration of all devices.
    fn config(strategy: Strategy, on_loss: OnDeviceLoss) -> SessionConfig {
        let devices = SessionConfig::default().with_cpu_devices(CpuGranularity::Machine).with_software_gpu(true);
        devices.with_dim("batch", 3).with_strategy(strategy).with_on_device_loss(on_loss)
    }

    /// A session with this strategy, and its inputs; `None` without any GPU.
    fn session(strategy: Strategy, on_loss: OnDeviceLoss) -> Option<(Session, Inputs)> {
        let session = Session::open(MODEL, config(strategy, on_loss)).expect("a model");
        let inputs = session.fill_random(Inputs::new(), 0).expect("known shapes");
        (!session.inventory().gpus.is_empty()).then_some((session, inputs))
    }

    /// Outputs of a CPU for the same inputs.
    fn expected() -> Outputs {
        let options = SessionConfig::default().without_gpu().with_dim("batch", 3);
        let session = Session::open(MODEL, options).expect("a model");
        session.run(&session.fill_random(Inputs::new(), 0).expect("known shapes")).expect("runs")
    }

    fn assert_right(outputs: &Outputs) {
        for ((name, tensor), (_, expected)) in outputs.iter().zip(expected().iter()) {
            let (got, want) = (tensor.elements::<f32>().expect("floats"), expected.elements::<f32>().expect("floats"));
            let near = got.iter().zip(want).all(|(got, want)| (got - want).abs() <= 1e-5 * want.abs().max(1.0));
            assert!(near && got.len() == want.len(), "{name}: {got:?} not {want:?}");
        }
    }

    /// Loses the GPU before the next run, or at its first submission.
    fn lose(session: &Session, inputs: &Inputs, during: bool) {
        let gpu = session.pool.gpu(DeviceId(1)).expect("it is open");
        if !during {
            return gpu.destroy();
        }
        let prepared = session.prepare(inputs).expect("it was before");
        lose_at_submission(&prepared.executor, gpu);
    }

    #[test]
    fn a_lost_gpu_fails_the_run_and_is_opened_again() {
        for during in [false, true] {
            let Some((session, inputs)) = session(Strategy::GPU, OnDeviceLoss::Fail) else { return };
            assert_right(&session.run(&inputs).expect("the GPU is there"));
            lose(&session, &inputs, during);
            let error = session.run(&inputs).map(drop).expect_err("the GPU is gone");
            assert_eq!((error.kind(), error.device()), (ErrorKind::DeviceFailure, Some("gpu0")), "{error}");
            assert_right(&session.run(&inputs).expect("it is opened again"));
            assert!(session.lost_devices().is_empty());
        }
    }

    #[test]
    fn a_lost_gpu_is_replaced_by_what_is_left() {
        for (strategy, during) in
            [(Strategy::GPU, false), (Strategy::GPU, true), (Strategy::Device("gpu0".into()), true)]
        {
            let Some((session, inputs)) = session(strategy, OnDeviceLoss::Replace) else { return };
            assert_right(&session.run(&inputs).expect("the GPU is there"));
            let prepared = session.prepare(&inputs).expect("it was");
            assert!(uses(&prepared, DeviceId(1)));
            lose(&session, &inputs, during);
            let run = session.run_with(&inputs, &RunOptions::default()).expect("the CPU is left");
            assert_right(&run.outputs);
            assert!(!uses(&run.prepared, DeviceId(1)));
            assert_eq!(session.lost_devices(), ["gpu0"]);
            assert_right(&session.run(&inputs).expect("the CPU is left"));
        }
    }

    #[test]
    fn what_must_be_on_the_lost_gpu_is_named() {
        if session(Strategy::HEFT, OnDeviceLoss::Replace).is_none() {
            return;
        }
        let pinned = config(Strategy::HEFT, OnDeviceLoss::Replace).with_pin("*", "gpu0");
        let session = Session::open(MODEL, pinned).expect("a model");
        let inputs = session.fill_random(Inputs::new(), 0).expect("known shapes");
        session.run(&inputs).expect("the GPU is there");
        lose(&session, &inputs, false);
        let error = session.run(&inputs).map(drop).expect_err("the nodes are pinned");
        assert_eq!((error.kind(), error.device()), (ErrorKind::Constraint, Some("gpu0")), "{error}");
        assert!(error.to_string().contains("was lost"), "{error}");
    }
}
