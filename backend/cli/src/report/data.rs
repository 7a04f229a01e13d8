//! What a report's page is given. Times in nanoseconds from the run's start, sizes in bytes; what refers to devices, nodes and
//! transfers is their index.

use serde::Serialize;

/// Everything that the page shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ReportData {
    /// What was run, where and when.
    pub(crate) facts: FactsData,
    /// What the plan says of the whole.
    pub(crate) predicted: TotalData,
    /// What was measured of it; `None` where nothing ran.
    pub(crate) measured: Option<TotalData>,
    /// The devices; the first is the host.
    pub(crate) devices: Vec<DeviceData>,
    /// Nodes in topological order, then the model's inputs and outputs.
    pub(crate) nodes: Vec<NodeData>,
    /// Which node reads what of which.
    pub(crate) edges: Vec<EdgeData>,
    /// What travels between devices.
    pub(crate) transfers: Vec<TransferData>,
    /// Width and height of the drawn graph, in pixels, and of a node.
    pub(crate) drawing: [f64; 4],
}

/// What was run, where and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct FactsData {
    pub(crate) model: String,
    /// The command, as it was typed.
    pub(crate) command: String,
    /// When: UTC.
    pub(crate) date: String,
    /// The machine: processor, system.
    pub(crate) machine: String,
    /// The version of Anabranch.
    pub(crate) version: String,
    pub(crate) strategy: String,
    pub(crate) place_ns: u64,
    /// Latency of every run, the first first; empty where nothing ran.
    pub(crate) latencies_ns: Vec<u64>,
}

/// Figures of the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct TotalData {
    /// From the start until the last output is there.
    pub(crate) makespan_ns: u64,
    pub(crate) traffic: u64,
}

/// Values that each hold until the next: pairs of a time and a value, ascending.
pub(crate) type Steps = Vec<[u64; 2]>;

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct DeviceData {
    pub(crate) name: String,
    /// `cpu` or `gpu`.
    pub(crate) kind: String,
    pub(crate) description: String,
    /// The most that a plan may take of its memory.
    pub(crate) limit: Option<u64>,
    /// What stays there between runs: constants and what kernels keep.
    pub(crate) resident: u64,
    /// The most that the plan takes.
    pub(crate) planned_peak: u64,
    pub(crate) measured_peak: Option<u64>,
    /// Bytes that hold something over the predicted time.
    pub(crate) memory_predicted: Steps,
    pub(crate) memory_measured: Steps,
    /// Tasks that it can choose from when it starts one, over the predicted time (Laich 2017, figure 7.10).
    pub(crate) executable_predicted: Steps,
    pub(crate) executable_measured: Steps,
}

/// What a node of the drawn graph is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    #[default]
    Node,
    Input,
    Output,
}

/// When something was due, began and ended. Of what is predicted, the first two are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Times {
    /// When its device or link turned to it.
    pub(crate) ready: u64,
    /// When all that it needs was there.
    pub(crate) start: u64,
    /// When it was done.
    pub(crate) end: u64,
}

/// A node of the drawn graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct NodeData {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) op: String,
    /// Its op's class in a canonical task graph.
    pub(crate) class: String,
    pub(crate) device: usize,
    pub(crate) flops: f64,
    /// Its middle in the drawing.
    pub(crate) at: [f64; 2],
    pub(crate) inputs: Vec<PortData>,
    pub(crate) outputs: Vec<PortData>,
    /// The model's operators in it, where they are more than one or named otherwise.
    pub(crate) operators: Vec<String>,
    /// Of a streaming block, what is in it.
    pub(crate) block: Option<BlockData>,
    pub(crate) predicted: Times,
    pub(crate) measured: Option<Times>,
    /// Whether it is on the chain of waits that makes the predicted makespan.
    pub(crate) critical_predicted: bool,
    /// Whether it is on the chain of waits that made the measured makespan.
    pub(crate) critical_measured: bool,
    /// By device, what it was thought to take there; `None` where it cannot run.
    pub(crate) costs: Vec<Option<CostData>>,
    /// Why it is where it is.
    pub(crate) why: WhyData,
}

/// Nodes that are computed together, chunk of rows by chunk of rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct BlockData {
    pub(crate) rows: usize,
    /// Rows that are computed at a time.
    pub(crate) chunk_rows: usize,
    /// What is computed, in order: the op, and the type and shape of its output.
    pub(crate) members: Vec<(String, String)>,
}

/// A tensor that a node reads or makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PortData {
    pub(crate) name: String,
    /// Type and shape under which the node has it.
    pub(crate) spec: String,
    pub(crate) bytes: u64,
    /// Whether it is the same in every run.
    pub(crate) constant: bool,
}

/// A predicted time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct CostData {
    pub(crate) ns: f64,
    /// What it rests on.
    pub(crate) source: String,
    /// Standard deviation of the samples, where there are several.
    pub(crate) deviation_ns: Option<f64>,
}

/// Why a node is on its device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct WhyData {
    pub(crate) text: String,
    /// What was compared.
    pub(crate) terms: Vec<&'static str>,
    /// The devices compared, best first, with a figure for each term.
    pub(crate) candidates: Vec<(usize, Vec<f64>)>,
    /// Whether the figures are seconds.
    pub(crate) seconds: bool,
}

/// One value on its way from the node that makes it to one that reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct EdgeData {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Which of the maker's outputs it is.
    pub(crate) port: usize,
    /// The transfer over which it comes, if the two are on different devices.
    pub(crate) transfer: Option<usize>,
    /// Points between the ends through which it is drawn.
    pub(crate) bends: Vec<[f64; 2]>,
}

/// A value on its way to another device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct TransferData {
    pub(crate) name: String,
    pub(crate) node: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) bytes: u64,
    /// `shared` (read in place), `copied` or `streamed`.
    pub(crate) route: &'static str,
    /// Of a streamed one, the number of chunks.
    pub(crate) chunks: usize,
    /// The node that reads it chunk by chunk.
    pub(crate) into: Option<usize>,
    pub(crate) predicted: Option<Times>,
    pub(crate) measured: Option<Times>,
    /// Whether it is on the chain of waits that makes the predicted makespan.
    pub(crate) critical_predicted: bool,
    /// Whether it is on the chain of waits that made the measured makespan.
    pub(crate) critical_measured: bool,
}
