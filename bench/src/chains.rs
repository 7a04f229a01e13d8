//! Chains of equal nodes that alternate between several devices.

use crate::gpu::adapter;
use crate::tiny::{self, Tiny};
use anabranch::execute::{ComputeDevice, CpuTeam, DevicePool, Executor, GpuOpener, Kernels};
use anabranch::plan::HOST;
use anabranch::plan::{Plan, PlanDevice, PlanOptions};
use anabranch::program::{Node, NodeId, Origin, Output, Program, Value, ValueId};
use anabranch::tasks::{NodeLimits, ProgramTasks, Residence};
use anabranch_kernels::TensorSpec;
use anabranch_kernels::cpu::CpuKernel;
use anabranch_kernels::op::{Domain, Expression, Map, NodeSpec, Op, Precision, Unary};
use anabranch_placement::cost::CostTable;
use anabranch_placement::order::Pct;
use anabranch_placement::place::{Fixed, Placer};
use anabranch_placement::platform::{Device, DeviceId, DeviceKind, DeviceKinds, Platform};
use anabranch_placement::problem::{MemoryRule, Problem};
use anabranch_placement::simulate::simulate;
use std::sync::Arc;

/// Chain of nodes that apply `op` to a tensor of `spec`, each with a result of `spec`.
pub struct Chain {
    /// Op of each node.
    pub op: Op,
    /// Spec of all tensors.
    pub spec: TensorSpec,
    /// Number of nodes.
    pub length: usize,
    /// Kernel on CPUs, if not the op's own.
    pub kernel: Option<Arc<dyn CpuKernel>>,
    /// Seconds per node that the plan assumes.
    pub seconds: f64,
}

impl Chain {
    /// Creates a chain of `length` times `relu` on 16 elements. If `bare`, its kernel does nothing else.
    pub fn tiny(length: usize, bare: bool) -> Self {
        let op = Op::Map(Map { domain: Domain::F32, expression: Expression::unary(Unary::Relu) });
        let kernel = bare.then(|| Arc::new(Tiny) as Arc<dyn CpuKernel>);
        Self { op, spec: tiny::spec(), length, kernel, seconds: 1e-7 }
    }

    /// Returns an executor of the chain in a new pool. Node `i` is on device `i` modulo their number. `None` if a
    /// kernel is missing.
    pub fn executor(&self, devices: &[ComputeDevice], options: &PlanOptions) -> Option<Executor> {
        self.executor_on(&DevicePool::new(devices.to_vec()), options)
    }

    /// Returns an executor of the chain on the devices of a pool. `None` if a kernel is missing.
    pub fn executor_on(&self, pool: &Arc<DevicePool>, options: &PlanOptions) -> Option<Executor> {
        let devices = pool.devices();
        let program = Arc::new(self.program());
        let planned: Vec<PlanDevice> = devices.iter().map(planned).collect();
        let limits = vec![NodeLimits { allowed: DeviceKinds::ALL, pinned: None, resident: 0 }; self.length];
        let tasks = ProgramTasks::new(&program, &limits, &[], &Residence::host(&program)).ok()?;
        let platform = planned.iter().map(|device| Device::new(device.name.clone(), device.kind)).collect();
        let platform = Platform::uniform(platform, 1e-5, 1e10).ok()?;
        let costs = CostTable::from_fn(tasks.graph(), &platform, |_, _| Some(self.seconds)).ok()?;
        let problem = Problem::new(tasks.graph(), &platform, &costs, MemoryRule::Ignore).ok()?;
        let turn = |at: usize| DeviceId((at % devices.len()) as u32);
        let device_of = (0..self.length).map(turn).chain([HOST, HOST]).collect();
        let placement = Fixed::new(device_of).place(&problem).ok()?;
        let schedule = simulate(&problem, &placement.device_of, &Pct).ok()?;
        let kernels = Kernels::new(Arc::clone(&program));
        if let Some(kernel) = &self.kernel {
            program.node_ids().for_each(|node| kernels.replace(node, Arc::clone(kernel)));
        }
        let plan = Plan::build(&program, &planned, &placement, &schedule, Vec::new(), &kernels, options).ok()?;
        Executor::new(plan.with_times_of(&schedule), Arc::new(kernels), pool).ok()
    }

    fn program(&self) -> Program {
        let value = |name: String, origin| Value { name, spec: self.spec.clone(), origin };
        let mut program = Program { values: vec![value("x".into(), Origin::Input)], ..Program::default() };
        program.inputs.push(ValueId(0));
        for at in 0..self.length as u32 {
            let (inputs, outputs) = (vec![self.spec.clone()], vec![self.spec.clone()]);
            program.values.push(value(format!("v{at}"), Origin::Node(NodeId(at))));
            program.nodes.push(Node {
                name: format!("n{at}"),
                operators: Vec::new(),
                spec: NodeSpec { op: self.op.clone(), inputs, outputs },
                inputs: vec![ValueId(at)],
                outputs: vec![ValueId(at + 1)],
            });
        }
        let (value, spec) = (ValueId(self.length as u32), self.spec.clone());
        program.outputs.push(Output { name: "y".into(), value, spec });
        program
    }
}

fn planned(device: &ComputeDevice) -> PlanDevice {
    let kind = match device {
        ComputeDevice::Cpu(_) => DeviceKind::Cpu,
        ComputeDevice::Gpu(_) => DeviceKind::Gpu,
    };
    PlanDevice { name: device.name().into(), kind, limit: None.into(), wake_ns: 5_000 }
}

/// Returns a CPU device of one thread, pinned to these processing units, if any.
pub fn cpu(number: usize, units: Vec<u32>) -> ComputeDevice {
    ComputeDevice::Cpu(CpuTeam { name: format!("cpu{number}"), threads: 1, units, slowdown: 1.0 })
}

/// Returns the GPU that benches measure.
pub fn gpu() -> Option<ComputeDevice> {
    Some(ComputeDevice::Gpu(GpuOpener::new("gpu0", adapter()?, Precision::F32)))
}
