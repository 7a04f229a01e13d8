//! What errors come from, for those who want to tell them apart.

/// What an error of a session or of a run comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file cannot be read, or is no sound ONNX model.
    Model,
    /// The model uses operators that there is no kernel for.
    Unsupported,
    /// A dimension of an input has no size, or two.
    Dimension,
    /// An input that the model needs is not given.
    MissingInput,
    /// A given input is not of the model, or of another type or shape than the model declares.
    Input,
    /// The options name a device that is not there, or nothing that it can do.
    Device,
    /// Everything was to run on a GPU, and there is none.
    NoGpu,
    /// There is no such strategy or device to place on.
    Strategy,
    /// A constraint names a node or device that is not there.
    Constraint,
    /// A plan file cannot be read, or does not fit model or devices.
    PlanFile,
    /// A platform file cannot be read, or does not fit the machine.
    PlatformFile,
    /// What the model needs does not fit the devices' memory limits.
    Memory,
    /// There is no placement within the constraints, for another reason than memory.
    Infeasible,
    /// A device cannot be used, or was lost.
    DeviceFailure,
    /// A kernel failed.
    Kernel,
    /// The run's [`CancelToken`](crate::cancel::CancelToken) was used.
    Cancelled,
    /// The run took longer than its options allow.
    Timeout,
    /// A fault of Anabranch.
    Internal,
}
