//! Kinds of errors, for callers that handle them differently.

/// Cause of an error of a session or of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file cannot be read, or is not a valid ONNX model.
    Model,
    /// The model uses operators for which there is no kernel.
    Unsupported,
    /// A dimension of an input has no size, or two different sizes.
    Dimension,
    /// An input that the model needs is missing.
    MissingInput,
    /// A given input is not in the model, or its type or shape differs from the model's declaration.
    Input,
    /// The options name an unknown device, or ask a device for something that it cannot do.
    Device,
    /// Everything should run on a GPU, but there is no GPU.
    NoGpu,
    /// The strategy, or the device to place on, does not exist.
    Strategy,
    /// A constraint names an unknown node or device.
    Constraint,
    /// A plan file cannot be read, or does not fit the model or the devices.
    PlanFile,
    /// A platform file cannot be read, or does not fit the machine.
    PlatformFile,
    /// The model needs more memory than the devices' limits allow.
    Memory,
    /// No placement satisfies the constraints, for another reason than memory.
    Infeasible,
    /// A device cannot be used, or was lost.
    DeviceFailure,
    /// A kernel failed.
    Kernel,
    /// The run's [`CancelToken`](crate::cancel::CancelToken) was used.
    Cancelled,
    /// The run took longer than its options allow.
    Timeout,
    /// A bug of Anabranch.
    Internal,
}
