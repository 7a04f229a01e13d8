"""Writes towers.onnx, the model that runs when no model is named.

    pip install onnx==1.23.2 numpy
    python3 generate.py

The model compares an image with a sentence, as CLIP does: a residual network reads the image, a transformer reads the
tokens, and the result is how similar they are. The two towers do not depend on each other, so they can run on different
devices at the same time. The weights are random. All of them are slices of 4,093 bytes, which the graph repeats, so that
18 MB of weights need a file of a few kilobytes.
"""

import math
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

POOL = 4093  # prime, so that rows of weights differ
LARGEST = 3 * 3 * 256 * 256


class Graph:
    def __init__(self):
        self.random = np.random.default_rng(1)
        self.nodes, self.initializers, self.known = [], [], {}
        bytes_ = self.initializer("pool", self.random.integers(-127, 128, POOL, dtype=np.int8))
        numbers = self.node("Cast", bytes_, to=TensorProto.FLOAT)
        self.pool = self.node("Tile", numbers, self.integers(LARGEST // POOL + 2))

    def initializer(self, name, array):
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def integers(self, *values):
        """A vector of integers, once for all that read it."""
        name = "i" + "_".join(map(str, values))
        if name not in self.known:
            self.known[name] = self.initializer(name, np.array(values, np.int64))
        return self.known[name]

    def number(self, value):
        name = f"f{value:.6g}"
        if name not in self.known:
            self.known[name] = self.initializer(name, np.array(value, np.float32))
        return self.known[name]

    def node(self, op, *inputs, name=None, **attributes):
        name = name or f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def weight(self, shape, spread):
        """Weights whose standard deviation is `spread`."""
        count = math.prod(shape)
        start = int(self.random.integers(POOL))
        part = self.node("Slice", self.pool, self.integers(start), self.integers(start + count))
        shaped = self.node("Reshape", part, self.integers(*shape))
        return self.node("Mul", shaped, self.number(spread / 73.3))

    def conv(self, x, inputs, outputs, kernel, stride=1, relu=True, plus=None):
        weight = self.weight((outputs, inputs, kernel, kernel), math.sqrt((2 if relu else 0.2) / (inputs * kernel**2)))
        bias = self.weight((outputs,), 0.05)
        x = self.node("Conv", x, weight, bias, strides=[stride] * 2, pads=[kernel // 2] * 4, kernel_shape=[kernel] * 2)
        x = self.node("Add", x, plus) if plus else x
        return self.node("Relu", x) if relu or plus else x

    def linear(self, x, inputs, outputs):
        product = self.node("MatMul", x, self.weight((inputs, outputs), math.sqrt(1 / inputs)))
        return self.node("Add", product, self.weight((outputs,), 0.02))

    def norm(self, x, width):
        scale = self.node("Add", self.weight((width,), 0.05), self.number(1))
        return self.node("LayerNormalization", x, scale, self.weight((width,), 0.02), axis=-1)

    def unit(self, x):
        return self.node("LpNormalization", x, axis=-1, p=2)

    def image_tower(self, image, size):
        x = self.conv(image, 3, 64, 7, stride=2)
        x = self.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        width = 64
        for stage, channels in enumerate((64, 128, 256)):
            for block in range(2):
                stride = 2 if stage and not block else 1
                skip = self.conv(x, width, channels, 1, stride, relu=False) if stride == 2 else x
                x = self.conv(self.conv(x, width, channels, 3, stride), channels, channels, 3, relu=False, plus=skip)
                width = channels
        x = self.node("Flatten", self.node("GlobalAveragePool", x))
        return self.unit(self.linear(x, width, size))

    def text_tower(self, tokens, length, vocabulary, size, width=192, heads=4, layers=4):
        x = self.node("Gather", self.weight((vocabulary, width), 0.5), tokens)
        x = self.node("Add", x, self.weight((length, width), 0.1))
        for _ in range(layers):
            x = self.node("Add", x, self.attention(self.norm(x, width), length, width, heads))
            inner = self.node("Gelu", self.linear(self.norm(x, width), width, 4 * width))
            x = self.node("Add", x, self.linear(inner, 4 * width, width))
        x = self.node("ReduceMean", self.norm(x, width), self.integers(1), keepdims=0)
        return self.unit(self.linear(x, width, size))

    def attention(self, x, length, width, heads):
        def part(order):
            shaped = self.node("Reshape", self.linear(x, width, width), self.integers(1, length, heads, width // heads))
            return self.node("Transpose", shaped, perm=order)

        query, key, value = part([0, 2, 1, 3]), part([0, 2, 3, 1]), part([0, 2, 1, 3])
        scores = self.node("Mul", self.node("MatMul", query, key), self.number((width // heads) ** -0.5))
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        joined = self.node("Reshape", self.node("Transpose", mixed, perm=[0, 2, 1, 3]), self.integers(1, length, width))
        return self.linear(joined, width, width)


def towers(size=128, length=64, vocabulary=2048):
    graph = Graph()
    image = graph.image_tower("image", size)
    text = graph.text_tower("tokens", length, vocabulary, size)
    across = graph.node("Transpose", text, perm=[1, 0])
    graph.node("MatMul", image, across, name="similarity")
    made = helper.make_graph(
        graph.nodes,
        "towers",
        [
            helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 96, 96]),
            helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, length]),
        ],
        [helper.make_tensor_value_info("similarity", TensorProto.FLOAT, [1, 1])],
        graph.initializers,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


if __name__ == "__main__":
    onnx.save(towers(), pathlib.Path(__file__).parent / "towers.onnx")
