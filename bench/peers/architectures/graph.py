"""A graph that grows node by node, with seeded random weights; values are known by their names.

Weights keep the size of what flows through: normal with a variance of `gain` by the number of terms of a sum, so that a gain of 2
makes up for a Relu behind it, and one below 1 keeps a residual branch smaller than what it is added to.
"""

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


class Graph:
    def __init__(self, name):
        self.name = name
        self.nodes, self.weights, self.inputs, self.given = [], [], [], {}
        self.constants = {}
        self.random = numpy.random.default_rng(1)

    def input(self, name, *shape, below=None):
        """An input of random numbers, or of integers below a limit."""
        if below is None:
            values, kind = self.random.standard_normal(shape, dtype=numpy.float32), TensorProto.FLOAT
        else:
            values, kind = self.random.integers(0, below, shape), TensorProto.INT64
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        self.given[name] = values
        return name

    def array(self, values):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def shared(self, values):
        """A small constant that many nodes use."""
        key = values.tobytes() + str((values.dtype, values.shape)).encode()
        if key not in self.constants:
            self.constants[key] = self.array(values)
        return self.constants[key]

    def integers(self, *values):
        return self.shared(numpy.array(values, numpy.int64))

    def floats(self, *values):
        return self.shared(numpy.array(values, numpy.float32))

    def scalar(self, value):
        return self.shared(numpy.array(value, numpy.float32))

    def index(self, value):
        return self.shared(numpy.array(value, numpy.int64))

    def weight(self, *shape, terms, gain=1.0):
        scale = numpy.float32((gain / terms) ** 0.5)
        return self.array(self.random.standard_normal(shape, dtype=numpy.float32) * scale)

    def bias(self, size):
        return self.weight(size, terms=100)

    def near_one(self, *shape):
        """What a normalisation multiplies with."""
        return self.array(1 + 0.1 * self.random.standard_normal(shape, dtype=numpy.float32))

    def node(self, kind, *inputs, **attributes):
        return self.outputs_of(kind, 1, *inputs, **attributes)[0]

    def outputs_of(self, kind, outputs, *inputs, **attributes):
        """The names of a node's outputs."""
        at = len(self.nodes)
        names = [f"v{at}"] if outputs == 1 else [f"v{at}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=f"{kind}{at}", **attributes))
        return names

    # Layers as PyTorch's exporter writes them --------------------------------------------------------------------------

    def conv(self, x, channels, maps, window=1, stride=1, group=1, gain=2.0, pad=None):
        """A convolution with the normalisation behind it folded into its weights; two dimensions, or `window` gives them."""
        window = [window] * 2 if isinstance(window, int) else window
        terms = channels // group * int(numpy.prod(window))
        pads = [(size // 2 if pad is None else pad) for size in window] * 2
        weights = self.weight(maps, channels // group, *window, terms=terms, gain=gain)
        return self.node("Conv", x, weights, self.bias(maps), kernel_shape=window, pads=pads, group=group,
                         strides=[stride] * len(window), dilations=[1] * len(window))

    def linear(self, x, rows, columns, gain=1.0):
        """A layer on values of three dimensions and more."""
        return self.node("Add", self.node("MatMul", x, self.weight(rows, columns, terms=rows, gain=gain)), self.bias(columns))

    def gemm(self, x, rows, columns, gain=1.0):
        """A layer on a matrix."""
        return self.node("Gemm", x, self.weight(columns, rows, terms=rows, gain=gain), self.bias(columns), transB=1)

    def pooled(self, x):
        return self.node("Flatten", self.node("GlobalAveragePool", x), axis=1)

    def relu(self, x):
        return self.node("Relu", x)

    def silu(self, x):
        return self.node("Mul", x, self.node("Sigmoid", x))

    def gelu(self, x):
        gate = self.node("Add", self.node("Erf", self.node("Div", x, self.scalar(2**0.5))), self.scalar(1))
        return self.node("Mul", self.node("Mul", x, gate), self.scalar(0.5))

    def layer_norm(self, x, width, epsilon=1e-5):
        return self.node("LayerNormalization", x, self.near_one(width), self.bias(width), axis=-1, epsilon=epsilon)

    def reshape(self, x, *shape):
        return self.node("Reshape", x, self.integers(*shape))

    def transpose(self, x, *perm):
        return self.node("Transpose", x, perm=perm)

    def save(self, directory, *outputs):
        """Writes the model, whose types are checked, and its inputs into an .npz beside it."""
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, made, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        del model.graph.value_info[:]
        onnx.checker.check_model(model)
        onnx.save(model, str(directory / f"{self.name}.onnx"))
        numpy.savez(directory / f"{self.name}.npz", **{f"in__{name}": values for name, values in self.given.items()})
