"""Errors of this package, each with the text that the command prints: its subject, its cause and the next step.

    AnabranchError
    ├── ModelError           the file cannot be read, or is not a valid ONNX model
    │   └── UnsupportedError an operator has no kernel
    ├── InputError           an input, option, graph or file is invalid (also a ValueError)
    ├── PlacementError       there is no such device or strategy, or no plan within the constraints
    ├── MemoryLimitError     the required memory exceeds a limit or is not available (also a MemoryError)
    ├── DeviceError          a device or a kernel failed
    ├── Cancelled            the run was cancelled
    ├── Timeout              the run took longer than it may (also a TimeoutError)
    └── InternalError        a bug in Anabranch
"""

from __future__ import annotations


class AnabranchError(Exception):
    """Any error of this package.

    Attributes:
        kind: Kind of the error in the library, such as ``MissingInput``.
        file: File of the error, or None.
        node: Name of the node, or None.
        device: Name of the device, or of a link as ``from -> to``, or None.
        input: Name of the input, or None.
    """

    kind: str = "Internal"
    file: str | None = None
    node: str | None = None
    device: str | None = None
    input: str | None = None


class ModelError(AnabranchError):
    """The file cannot be read, or is not a valid ONNX model."""


class UnsupportedError(ModelError):
    """The model uses operators without a kernel."""


class InputError(AnabranchError, ValueError):
    """An input, an option, a graph or a file is invalid."""


class PlacementError(AnabranchError):
    """There is no such device or strategy, or no plan within the constraints."""


class MemoryLimitError(AnabranchError, MemoryError):
    """The required memory exceeds the devices' limits, or the memory that the system has left."""


class DeviceError(AnabranchError):
    """A device cannot be used or was lost, or a kernel failed."""


class Cancelled(AnabranchError):
    """The run was cancelled."""


class Timeout(AnabranchError, TimeoutError):
    """The run exceeded its time limit."""


class InternalError(AnabranchError):
    """A bug in Anabranch; please report it."""


_CLASSES: dict[str, type[AnabranchError]] = {
    "Model": ModelError,
    "Unsupported": UnsupportedError,
    "Dimension": InputError,
    "MissingInput": InputError,
    "Input": InputError,
    "Device": PlacementError,
    "NoGpu": PlacementError,
    "Strategy": PlacementError,
    "Constraint": PlacementError,
    "PlanFile": PlacementError,
    "PlatformFile": PlacementError,
    "Memory": MemoryLimitError,
    "Infeasible": PlacementError,
    "DeviceFailure": DeviceError,
    "Kernel": DeviceError,
    "Cancelled": Cancelled,
    "Timeout": Timeout,
}


def of(
    kind: str, text: str, file: str | None, node: str | None, device: str | None, input: str | None
) -> AnabranchError:
    """Returns the exception for an error of the library. The compiled part raises it."""
    error = _CLASSES.get(kind, InternalError)(text)
    error.kind, error.file, error.node, error.device, error.input = kind, file, node, device, input
    return error


def of_sample(error: AnabranchError, number: int) -> AnabranchError:
    """Returns the error of a sample that was refused, with the number of the sample."""
    made = type(error)(f"sample {number}: {error}")
    vars(made).update(vars(error))
    return made
