"""Anabranch as a backend of the package ``onnx``: ``onnx.backend.base.Backend``.

    import anabranch.backend
    rep = anabranch.backend.prepare(onnx.load("model.onnx"))
    outputs = rep.run([x])

The only device is ``CPU`` (all CPU devices). ``CUDA`` is not supported: `anabranch.Session` uses GPUs through Vulkan and similar
interfaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict
from onnx.helper import make_graph, make_model, make_operatorsetid, make_tensor_value_info, np_dtype_to_tensor_dtype

from .errors import AnabranchError, PlacementError
from .session import Session


class AnabranchRep(BackendRep):
    """A model that is ready to run."""

    def __init__(self, session: Session) -> None:
        self.session = session
        # Inputs are given in the order of the model's inputs without a default.
        self._names = [value.name for value in session.inputs if not value.optional]

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Runs the model.

        Args:
            inputs: Arrays in the order of the model's inputs, or by their names; a single array for a single input.

        Returns:
            The outputs in the model's order, also by their names.
        """
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        named = inputs if isinstance(inputs, Mapping) else dict(zip(self._names_for(len(inputs)), inputs, strict=False))
        outputs = self.session.run(named)
        names = [value.name for value in self.session.outputs]
        return namedtupledict("Outputs", names)(*(outputs[name] for name in names))

    def _names_for(self, count: int) -> list[str]:
        every = [value.name for value in self.session.inputs]
        return self._names if count == len(self._names) else every[:count]


class AnabranchBackend(Backend):
    """The backend; all its methods are class methods, and this module has them as functions."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> AnabranchRep:
        """Returns a model that is ready to run. `options` are those of `anabranch.Session`; options of the test runner are ignored.

        Raises:
            PlacementError: If the device is not supported.
        """
        if not cls.supports_device(device):
            raise PlacementError(f"the backend has no device {device}; use CPU, or anabranch.Session for GPUs")
        options = {name: value for name, value in options.items() if name not in ("rtol", "atol")}
        return AnabranchRep(Session(model, **{"gpu": False, **options}))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """Prepares a model and runs it once."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Sequence[Any],
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """Runs a single node as a model, with ``opset_version`` or the newest version of the standard operators that the package
        ``onnx`` supports."""
        opset = options.pop("opset_version", onnx.defs.onnx_opset_version())
        arrays = [np.asarray(value) for value in inputs]
        given = [name for name in node.input if name]
        values = [
            make_tensor_value_info(name, np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(given, arrays, strict=True)
        ]
        described: list[tuple[Any, Any]] = list(outputs_info) if outputs_info else [(None, None)] * len(node.output)
        outputs = [
            onnx.ValueInfoProto(name=name) if dtype is None else make_tensor_value_info(name, np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (dtype, shape) in zip(node.output, described, strict=True)
            if name
        ]
        model = make_model(make_graph([node], node.op_type or "node", values, outputs), opset_imports=[make_operatorsetid(node.domain, opset)])
        if outputs_info is None:
            model = onnx.shape_inference.infer_shapes(model)
        return cls.run_model(model, arrays, device, **options)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models can be prepared for a device of this name."""
        return bool(Device(device).type == DeviceType.CPU)

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> bool:
        """Whether all operators of the model have a kernel, as far as this is known without its inputs."""
        try:
            Session(model, gpu=False)
        except AnabranchError:
            return False
        return True


is_compatible = AnabranchBackend.is_compatible
prepare = AnabranchBackend.prepare
run_model = AnabranchBackend.run_model
run_node = AnabranchBackend.run_node
supports_device = AnabranchBackend.supports_device
