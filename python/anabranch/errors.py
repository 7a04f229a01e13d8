"""What goes wrong, each with the text that the command would print: what it is about, and what to do next.

    AnabranchError
    ├── ModelError           the file cannot be read, or is no sound ONNX model
    │   └── UnsupportedError an operator has no kernel
    ├── InputError           an input, option, graph or file is not what it must be (also a ValueError)
    ├── PlacementError       there is no such device or strategy, or no plan within the constraints
    ├── MemoryLimitError     what is needed does not fit the devices' memory (also a MemoryError)
    ├── DeviceError          a device or a kernel failed
    ├── Cancelled            the run was cancelled
    ├── Timeout              the run took longer than it may (also a TimeoutError)
    └── InternalError        a fault of Anabranch
"""

from __future__ import annotations


class AnabranchError(Exception):
    """Any error of this package.

    Attributes:
        kind: What it comes from, in the library's words, such as ``MissingInput``.
        file: The file that it is about, or None.
        node: The node's name, or None.
        device: The device's name, or a link's as ``from -> to``, or None.
        input: The input's name, or None.
    """

    kind: str = "Internal"
    file: str | None = None
    node: str | None = None
    device: str | None = None
    input: str | None = None


class ModelError(AnabranchError):
    """The file cannot be read, or is no sound ONNX model."""


class UnsupportedError(ModelError):
    """The model uses what there is no kernel for."""


class InputError(AnabranchError, ValueError):
    """An input, an option, a graph or a file is not what it must be."""


class PlacementError(AnabranchError):
    """There is no such device or strategy, or no plan within the constraints."""


class MemoryLimitError(AnabranchError, MemoryError):
    """What is needed does not fit the devices' memory limits, or the memory that the system has left."""


class DeviceError(AnabranchError):
    """A device cannot be used or was lost, or a kernel failed."""


class Cancelled(AnabranchError):
    """The run was cancelled."""


class Timeout(AnabranchError, TimeoutError):
    """The run took longer than it may."""


class InternalError(AnabranchError):
    """A fault of Anabranch; please report it."""


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
    """The exception for an error of the library. The compiled part raises what this gives."""
    error = _CLASSES.get(kind, InternalError)(text)
    error.kind, error.file, error.node, error.device, error.input = kind, file, node, device, input
    return error
