//! Why a plan cannot be made.

use anabranch_kernels::KernelError;

/// Why there is no plan for a program on these devices under this placement.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are what the messages call them")]
pub enum PlanError {
    /// No host.
    #[error("the first device must be a CPU device, which holds inputs and outputs; it is {0}")]
    Host(String),
    /// The placement has another number of tasks than the program.
    #[error("the placement names {given} devices for {tasks} tasks; place the program again")]
    Length { tasks: usize, given: usize },
    /// A device that is not there.
    #[error("{task} is placed on device {device}, but there are only {count} devices")]
    UnknownDevice { task: String, device: u32, count: usize },
    /// An input or output on another CPU device than the host.
    #[error("{task} must be on the host {host:?} or on a GPU, not on {device:?}")]
    NotOnHost { task: String, host: String, device: String },
    /// The order misses a task, names one twice, or names a consumer before its producer.
    #[error("the order is not one in which the program can run: {task} {problem}")]
    Order { task: String, problem: &'static str },
    /// A node without a kernel on its device.
    #[error("node {node:?} cannot run on {device:?}: {source}; place it elsewhere")]
    Kernel { node: String, device: String, source: Box<KernelError> },
    /// A device is too small.
    #[error(transparent)]
    Memory(Box<MemoryShortage>),
}

/// What a plan puts on a device does not fit there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{device:?} has {available} bytes for this plan, which needs {needed} there, {resident} of them for weights: {node:?} is \
     the first node that does not fit; give the device more memory, use further devices, or place with a smaller budget \
     for it"
)]
pub struct MemoryShortage {
    /// The device's name.
    pub device: String,
    /// The first node, in the total order, whose memory goes over the limit.
    pub node: String,
    /// The plan's peak on the device, in bytes.
    pub needed: u64,
    /// Of these, what stays there between runs: constants and packed weights.
    pub resident: u64,
    /// The device's limit, in bytes.
    pub available: u64,
}
