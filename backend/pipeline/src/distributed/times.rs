//! Times of a model's nodes on the devices of one machine, in the form in which machines exchange them.

use super::super::part_planner::PartPlanner;
use super::super::processors::whole_devices;
use anabranch_base::error_kind::ErrorKind;
use anabranch_execute::ExecError;
use anabranch_ir::program::{Origin, Program};
use anabranch_session::{Inputs, Session, SessionError, ordered};
use serde::{Deserialize, Serialize};

/// Times of a model's nodes on the devices of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineTimes {
    /// Names of the model's nodes after lowering, in the order of the program.
    pub nodes: Vec<String>,
    /// Digest of the constants: of their types and shapes, and of samples of their bytes.
    pub constants: String,
    /// The devices that a stage can run on.
    pub devices: Vec<DeviceTimes>,
}

/// Times of a model's nodes on one device, and the device's memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceTimes {
    /// Name of the device on its machine.
    pub name: String,
    /// Bytes that the device may hold; `None` if they are unlimited.
    pub memory: Option<u64>,
    /// Seconds of each node, in the order of [`MachineTimes::nodes`].
    pub seconds: Vec<f64>,
    /// Whether the seconds were measured. Otherwise they are predicted.
    pub measured: bool,
}

impl MachineTimes {
    /// Returns the times of a session's model with inputs like these, on each of the session's devices.
    ///
    /// If `measure` is true, each device runs the whole model eight times. Devices whose memory is too small for the
    /// whole model keep the predicted times.
    ///
    /// # Errors
    /// If the inputs do not fit the model, the model runs in phases, or a device fails.
    pub fn of(session: &Session, inputs: &Inputs, measure: bool) -> Result<Self, SessionError> {
        if session.options.calibrate {
            session.calibrate()?;
        }
        let parts = PartPlanner::of(session, inputs)?;
        let program = &parts.lowered.program;
        let processors = whole_devices(session);
        let mut devices = Vec::with_capacity(processors.len());
        for processor in &processors {
            let memory = processor.machine(&parts.machine).memory().last().copied().filter(|bytes| *bytes < u64::MAX);
            let seconds = parts.predicted(processor)?;
            devices.push(DeviceTimes { name: processor.name.clone(), memory, seconds, measured: false });
        }
        if measure {
            let given = ordered(inputs, program, |_| true)?;
            for (device, processor) in devices.iter_mut().zip(&processors) {
                // A device alone: stages of a cluster are on different machines, and seldom share a memory bus.
                if let Some(Some(seconds)) = parts.by_kind(session, &given, std::slice::from_ref(processor))?.pop() {
                    (device.seconds, device.measured) = (seconds, true);
                }
            }
        }
        let nodes = program.nodes.iter().map(|node| node.name.clone()).collect();
        Ok(Self { nodes, constants: digest(program)?, devices })
    }
}

/// Returns the digest of a program's constants. It reads little of what lies in files.
pub(super) fn digest(program: &Program) -> Result<String, SessionError> {
    let mut hasher = blake3::Hasher::new();
    for value in &program.values {
        if let Origin::Constant(constant) = &value.origin {
            let sampled = constant.sample(&mut |bytes| _ = hasher.update(bytes));
            sampled.map_err(|error| ExecError::new(ErrorKind::Input, error.to_string()))?;
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}
