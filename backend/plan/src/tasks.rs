//! The task graph of a program, on which placement decides.
//!
//! Task `i` is the program's node `i`. After the nodes comes one task for each input and each output of the program.
//! These tasks take no time, and are pinned to the device of the caller's tensor ([`Residence`]): the host, unless the
//! caller keeps it on a GPU. A datum is a value that a node makes or the caller gives. Constants are not data, because
//! each device has its own copy.

use crate::HOST;
use anabranch_ir::program::{NodeId, Origin, Program, ValueId};
use anabranch_placement_core::graph::{DatumId, GraphBuilder, GraphError, Task, TaskGraph, TaskId};
use anabranch_placement_core::platform::{DeviceId, DeviceKind, DeviceKinds};

/// Meaning of a task of a program's graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A node.
    Node(NodeId),
    /// The caller gives the program's input of this index.
    Input(usize),
    /// The caller receives the program's output of this index.
    Output(usize),
}

/// Limits of the placement of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeLimits {
    /// Kinds of devices that have a kernel for the node.
    pub allowed: DeviceKinds,
    /// Device to which the user pins the node.
    pub pinned: Option<DeviceId>,
    /// Bytes that stay on its device between runs: constants and packed weights.
    pub resident: u64,
}

/// Devices of the caller's tensors: the host, or a GPU on which they stay from run to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residence {
    /// Device of each input.
    pub inputs: Vec<DeviceId>,
    /// Device of each output.
    pub outputs: Vec<DeviceId>,
}

impl Residence {
    /// Returns the residence with all tensors on the host.
    pub fn host(program: &Program) -> Self {
        Self { inputs: vec![HOST; program.inputs.len()], outputs: vec![HOST; program.outputs.len()] }
    }
}

/// A program's task graph, and the meanings of its tasks and data.
#[derive(Clone, Debug)]
pub struct ProgramTasks {
    graph: TaskGraph,
    nodes: usize,
    inputs: usize,
    data: Vec<Option<DatumId>>,
    values: Vec<ValueId>,
}

impl ProgramTasks {
    /// Builds the graph. `limits` has one entry per node; `colocated` are pairs of nodes that must share a device.
    /// O(nodes + edges).
    ///
    /// # Errors
    /// If colocated nodes contradict each other.
    pub fn new(
        program: &Program,
        limits: &[NodeLimits],
        colocated: &[(NodeId, NodeId)],
        residence: &Residence,
    ) -> Result<Self, GraphError> {
        let mut builder = GraphBuilder::new();
        for (node, limits) in program.nodes.iter().zip(limits) {
            let task = Task::new(&node.name)
                .with_allowed(limits.allowed)
                .with_memory(limits.resident)
                .with_operations(node.spec.work().flops);
            builder.task(match limits.pinned {
                Some(device) => task.with_pin(device),
                None => task,
            });
        }
        for (input, device) in program.inputs.iter().zip(&residence.inputs) {
            let value = program.value(*input);
            builder.task(callers(format!("input {}", value.name), *device, value.spec.bytes()));
        }
        for (output, device) in program.outputs.iter().zip(&residence.outputs) {
            builder.task(callers(format!("output {}", output.name), *device, output.spec.bytes()));
        }
        let mut tasks = Self {
            graph: GraphBuilder::new().build()?,
            nodes: program.nodes.len(),
            inputs: program.inputs.len(),
            data: vec![None; program.values.len()],
            values: Vec::new(),
        };
        tasks.add_data(program, &mut builder);
        for (first, second) in colocated {
            builder.colocate(TaskId(first.0), TaskId(second.0));
        }
        tasks.graph = builder.build()?;
        Ok(tasks)
    }

    fn add_data(&mut self, program: &Program, builder: &mut GraphBuilder) {
        let consumers = program.consumers();
        for (index, value) in program.values.iter().enumerate() {
            let id = ValueId(index as u32);
            let producer = match &value.origin {
                Origin::Constant(_) => continue,
                Origin::Node(node) => TaskId(node.0),
                Origin::Input => match program.inputs.iter().position(|input| *input == id) {
                    Some(position) => TaskId((self.nodes + position) as u32),
                    None => continue,
                },
            };
            let datum = builder.datum(producer, value.spec.bytes() as u64);
            self.data[index] = Some(datum);
            self.values.push(id);
            for node in &consumers[index] {
                builder.consume(datum, TaskId(node.0));
            }
            for (position, _) in program.outputs.iter().enumerate().filter(|(_, output)| output.value == id) {
                builder.consume(datum, TaskId((self.nodes + self.inputs + position) as u32));
            }
        }
    }

    /// Returns the graph.
    pub fn graph(&self) -> &TaskGraph {
        &self.graph
    }

    /// Returns the meaning of a task.
    pub fn role(&self, task: TaskId) -> Role {
        match task.index() {
            node if node < self.nodes => Role::Node(NodeId(task.0)),
            input if input < self.nodes + self.inputs => Role::Input(input - self.nodes),
            output => Role::Output(output - self.nodes - self.inputs),
        }
    }

    /// Returns the task of a node.
    pub fn task(&self, node: NodeId) -> TaskId {
        TaskId(node.0)
    }

    /// Returns the datum of a value; `None` for constants.
    pub fn datum(&self, value: ValueId) -> Option<DatumId> {
        self.data[value.index()]
    }

    /// Returns the value of a datum.
    pub fn value(&self, datum: DatumId) -> ValueId {
        self.values[datum.index()]
    }
}

/// Task of a tensor that the caller has on a device; on a GPU it takes memory as long as the model is loaded.
fn callers(name: String, device: DeviceId, bytes: usize) -> Task {
    let task = Task::new(name).with_pin(device);
    match device {
        HOST => task.with_allowed(DeviceKind::Cpu.into()),
        _ => task.with_memory(bytes as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_ir::program::{ModelOperator, Node, Output, Value};
    use anabranch_kernels::op::{Domain, Expression, Map, NodeSpec, Op, Unary};
    use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};

    /// `y = relu(x)`, and a constant that is an output.
    fn program() -> Program {
        let spec = TensorSpec::new(DType::F32, Shape::new(vec![4]).expect("small"));
        let op = Op::Map(Map { domain: Domain::F32, expression: Expression::unary(Unary::Relu) });
        let value = |name: &str, origin| Value { name: name.into(), spec: spec.clone(), origin };
        let output = |name: &str, value| Output { name: name.into(), value, spec: spec.clone() };
        Program {
            values: vec![
                value("c", Origin::Constant(Tensor::zeroed(spec.clone()).into())),
                value("x", Origin::Input),
                value("y", Origin::Node(NodeId(0))),
            ],
            nodes: vec![Node {
                name: "relu".into(),
                operators: vec![ModelOperator::new("relu", "Relu")],
                spec: NodeSpec { op, inputs: vec![spec.clone()], outputs: vec![spec.clone()] },
                inputs: vec![ValueId(1)],
                outputs: vec![ValueId(2)],
            }],
            inputs: vec![ValueId(1)],
            outputs: vec![output("c", ValueId(0)), output("y", ValueId(2))],
            ..Program::default()
        }
    }

    #[test]
    fn nodes_inputs_and_outputs_become_tasks_and_values_data() {
        let limits = [NodeLimits { allowed: DeviceKinds::ALL, pinned: None, resident: 8 }];
        let tasks = ProgramTasks::new(&program(), &limits, &[], &Residence::host(&program())).expect("consistent");
        let roles: Vec<_> = tasks.graph().task_ids().map(|task| tasks.role(task)).collect();
        assert_eq!(roles, [Role::Node(NodeId(0)), Role::Input(0), Role::Output(0), Role::Output(1)]);
        assert_eq!(tasks.graph().datum_count(), 2);
        assert_eq!(tasks.datum(ValueId(0)), None);
        let made = tasks.datum(ValueId(2)).expect("a node's output is a datum");
        assert_eq!(tasks.value(made), ValueId(2));
        assert_eq!(tasks.graph().bytes(made), 16);
        assert_eq!(tasks.graph().consumers(made), [TaskId(3)]);
        assert_eq!(tasks.graph().task(TaskId(1)).pinned, Some(HOST));
        let residence = Residence { inputs: vec![DeviceId(1)], outputs: vec![HOST, DeviceId(2)] };
        let tasks = ProgramTasks::new(&program(), &limits, &[], &residence).expect("consistent");
        let pins: Vec<_> = tasks.graph().tasks()[1..].iter().map(|task| (task.pinned, task.memory)).collect();
        assert_eq!(pins, [(Some(DeviceId(1)), 16), (Some(HOST), 0), (Some(DeviceId(2)), 16)]);
    }
}
