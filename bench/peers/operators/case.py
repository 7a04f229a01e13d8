"""One operator with its inputs: a model of one node."""

from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto, helper, numpy_helper

IR, OPSET = 10, 23
#: Elements of the last axis, and elements in all.
INNER = (1, 2, 3, 4, 7, 16, 64, 1000)
SMALL, MIDDLE, LARGE = 256, 1 << 16, 1 << 20
SIZES = (SMALL, MIDDLE, LARGE)


class Constant:
    """An input that is an initializer of the model."""

    def __init__(self, value, dtype=None):
        self.value = np.asarray(value, dtype)


#: Greatest errors in parts of an element and of the greatest element: of copies, of single steps, and of sums of products.
EXACT, STEP, SUM = 0.0, 1e-5, 1e-4


@dataclass
class Case:
    """A node of an operator. `inputs` are arrays, constants or None."""

    op: str
    label: str
    inputs: list
    attributes: dict = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    tolerance: float = STEP
    #: Units by which integers may differ, as they are rounded.
    off_by: int = 0
    opset: int = OPSET
    #: Whether it is timed, and not only compared.
    timed: bool = True
    #: Whether the outputs are sequences of f32.
    makes_sequence: bool = False
    #: Inputs of the node, if its graphs read those behind.
    taken: int | None = None
    family: str = ""

    @property
    def name(self):
        return f"{self.domain}.{self.op}" if self.domain else self.op

    def arrays(self):
        """The inputs of a run, by name."""
        return {f"x{at}": each for at, each in enumerate(self.inputs) if isinstance(each, np.ndarray)}

    def model(self):
        """The model's bytes."""
        names = ["" if each is None else f"x{at}" for at, each in enumerate(self.inputs)]
        made = [f"y{at}" for at in range(self.outputs)]
        node = helper.make_node(self.op, names[: self.taken], made, domain=self.domain, **self.attributes)
        given = [
            helper.make_tensor_value_info(name, element_type(array), array.shape) for name, array in self.arrays().items()
        ]
        constants = [
            numpy_helper.from_array(each.value, f"x{at}") for at, each in enumerate(self.inputs) if isinstance(each, Constant)
        ]
        sequence = lambda name: helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
        results = [(sequence if self.makes_sequence else helper.make_empty_tensor_value_info)(name) for name in made]
        graph = helper.make_graph([node], "operator", given, results, constants)
        domains = {"": self.opset, "ai.onnx.ml": 3, "com.microsoft": 1}
        opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR).SerializeToString()


def element_type(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def floats(*shape, seed=1, low=-1.0, high=1.0, dtype=np.float32):
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


def integers(*shape, seed=1, low=0, high=100, dtype=np.int64):
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def flags(*shape, seed=1):
    return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)


def filled(shape, dtype, seed=1):
    """Elements of any type."""
    return (floats if np.dtype(dtype).kind == "f" else integers)(*shape, seed=seed, dtype=dtype)


def rows(inner, total=MIDDLE):
    """Rows of `inner` elements, about `total` in all."""
    return max(1, total // inner)


__all__ = ["Case", "Constant", "EXACT", "INNER", "LARGE", "MIDDLE", "SIZES", "SMALL", "STEP", "SUM", "TensorProto", "filled", "flags", "floats", "integers", "rows"]
