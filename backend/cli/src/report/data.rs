//! What a report's page is given. Times in nanoseconds from the run's start, sizes in bytes; what refers to devices, nodes and
//! transfers is their index.

use serde::Serialize;

/// Everything that the page shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReportData {
    /// What was run, where and when.
    pub facts: FactsData,
    /// What the plan says of the whole.
    pub predicted: TotalData,
    /// What was measured of it; `None` where nothing ran.
    pub measured: Option<TotalData>,
    /// The devices; the first is the host.
    pub devices: Vec<DeviceData>,
    /// Nodes in topological order, then the model's inputs and outputs.
    pub nodes: Vec<NodeData>,
    /// Which node reads what of which.
    pub edges: Vec<EdgeData>,
    /// What travels between devices.
    pub transfers: Vec<TransferData>,
    /// Width and height of the drawn graph, in pixels, and of a node.
    pub drawing: [f64; 4],
}

/// What was run, where and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FactsData {
    /// The model.
    pub model: String,
    /// The command, as it was typed.
    pub command: String,
    /// When: UTC.
    pub date: String,
    /// The machine: processor, system.
    pub machine: String,
    /// The version of Anabranch.
    pub version: String,
    /// Who placed the nodes.
    pub strategy: String,
    /// How long that took.
    pub place_ns: u64,
    /// Latency of every run, the first first; empty where nothing ran.
    pub latencies_ns: Vec<u64>,
}

/// Figures of the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TotalData {
    /// From the start until the last output is there.
    pub makespan_ns: u64,
    /// Bytes of all transfers.
    pub traffic: u64,
}

/// Values that each hold until the next: pairs of a time and a value, ascending.
pub type Steps = Vec<[u64; 2]>;

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeviceData {
    /// Its name in plans.
    pub name: String,
    /// `cpu` or `gpu`.
    pub kind: String,
    /// What it is.
    pub description: String,
    /// The most that a plan may take of its memory.
    pub limit: Option<u64>,
    /// What stays there between runs: constants and what kernels keep.
    pub resident: u64,
    /// The most that the plan takes.
    pub planned_peak: u64,
    /// The most that was taken.
    pub measured_peak: Option<u64>,
    /// Bytes that hold something over the predicted time.
    pub memory_predicted: Steps,
    /// The same over the measured time.
    pub memory_measured: Steps,
    /// Tasks that it can choose from when it starts one, over the predicted time (Laich 2017, figure 7.10).
    pub executable_predicted: Steps,
    /// The same over the measured time.
    pub executable_measured: Steps,
}

/// What a node of the drawn graph is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A node of the program.
    #[default]
    Node,
    /// An input of the model.
    Input,
    /// An output of the model.
    Output,
}

/// When something was due, began and ended. Of what is predicted, the first two are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// When its device or link turned to it.
    pub ready: u64,
    /// When all that it needs was there.
    pub start: u64,
    /// When it was done.
    pub end: u64,
}

/// A node of the drawn graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeData {
    /// Its name.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// What it computes.
    pub op: String,
    /// Its op's class in a canonical task graph.
    pub class: String,
    /// Where it runs.
    pub device: usize,
    /// Floating-point operations.
    pub flops: f64,
    /// Its middle in the drawing.
    pub at: [f64; 2],
    /// The tensors read.
    pub inputs: Vec<PortData>,
    /// The tensors made.
    pub outputs: Vec<PortData>,
    /// The model's operators in it, where they are more than one or named otherwise.
    pub operators: Vec<String>,
    /// Of a streaming block, what is in it.
    pub block: Option<BlockData>,
    /// When it should run.
    pub predicted: Times,
    /// When it ran.
    pub measured: Option<Times>,
    /// Whether it is on the chain of waits that makes the predicted makespan.
    pub critical_predicted: bool,
    /// Whether it is on the chain of waits that made the measured makespan.
    pub critical_measured: bool,
    /// By device, what it was thought to take there; `None` where it cannot run.
    pub costs: Vec<Option<CostData>>,
    /// Why it is where it is.
    pub why: WhyData,
}

/// Nodes that are computed together, chunk of rows by chunk of rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BlockData {
    /// Rows in all.
    pub rows: usize,
    /// Rows that are computed at a time.
    pub chunk_rows: usize,
    /// What is computed, in order: the op, and the type and shape of its output.
    pub members: Vec<(String, String)>,
}

/// A tensor that a node reads or makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PortData {
    /// Its name.
    pub name: String,
    /// Type and shape under which the node has it.
    pub spec: String,
    /// Its size.
    pub bytes: u64,
    /// Whether it is the same in every run.
    pub constant: bool,
}

/// A predicted time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CostData {
    /// The time.
    pub ns: f64,
    /// What it rests on.
    pub source: String,
    /// Standard deviation of the samples, where there are several.
    pub deviation_ns: Option<f64>,
}

/// Why a node is on its device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WhyData {
    /// In words.
    pub text: String,
    /// What was compared.
    pub terms: Vec<&'static str>,
    /// The devices compared, best first, with a figure for each term.
    pub candidates: Vec<(usize, Vec<f64>)>,
    /// Whether the figures are seconds.
    pub seconds: bool,
}

/// One value on its way from the node that makes it to one that reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EdgeData {
    /// Who makes it.
    pub from: usize,
    /// Who reads it.
    pub to: usize,
    /// Which of the maker's outputs it is.
    pub port: usize,
    /// The transfer over which it comes, if the two are on different devices.
    pub transfer: Option<usize>,
    /// Points between the ends through which it is drawn.
    pub bends: Vec<[f64; 2]>,
}

/// A value on its way to another device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TransferData {
    /// The value.
    pub name: String,
    /// Who makes it.
    pub node: usize,
    /// From which device.
    pub from: usize,
    /// To which.
    pub to: usize,
    /// Its size.
    pub bytes: u64,
    /// `shared` (read in place), `copied` or `streamed`.
    pub route: &'static str,
    /// Of a streamed one, the number of chunks.
    pub chunks: usize,
    /// The node that reads it chunk by chunk.
    pub into: Option<usize>,
    /// When it should travel.
    pub predicted: Option<Times>,
    /// When it travelled.
    pub measured: Option<Times>,
    /// Whether it is on the chain of waits that makes the predicted makespan.
    pub critical_predicted: bool,
    /// Whether it is on the chain of waits that made the measured makespan.
    pub critical_measured: bool,
}
