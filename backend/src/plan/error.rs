//! Why a plan cannot be made.

use anabranch_kernels::KernelError;

/// Why there is no plan for a program on these devices under this placement.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No host.
    #[error("the first device must be a CPU device, which holds inputs and outputs; it is {0}")]
    Host(String),
    /// The placement has another number of tasks than the program.
    #[error("the placement names {given} devices for {tasks} tasks; place the program again")]
    Length {
        /// Tasks of the program.
        tasks: usize,
        /// Devices given.
        given: usize,
    },
    /// A device that is not there.
    #[error("{task} is placed on device {device}, but there are only {count} devices")]
    UnknownDevice {
        /// The task.
        task: String,
        /// The number of the device.
        device: u32,
        /// Devices there are.
        count: usize,
    },
    /// An input or output on another CPU device than the host.
    #[error("{task} must be on the host {host:?} or on a GPU, not on {device:?}")]
    NotOnHost {
        /// The task.
        task: String,
        /// The host's name.
        host: String,
        /// The device named.
        device: String,
    },
    /// The order misses a task, names one twice, or names a consumer before its producer.
    #[error("the order is not one in which the program can run: {task} {problem}")]
    Order {
        /// The task.
        task: String,
        /// What is wrong with its place.
        problem: &'static str,
    },
    /// A node without a kernel on its device.
    #[error("node {node:?} cannot run on {device:?}: {source}; place it elsewhere")]
    Kernel {
        /// The node's name.
        node: String,
        /// The device's name.
        device: String,
        /// What is missing.
        source: Box<KernelError>,
    },
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
