"""Writes two models with large weights, made of seeded random numbers, for the memory figures in ../PEERS.md.

`large_models.py DIRECTORY` writes bert12.onnx (12 layers of width 768 over 128 tokens of a vocabulary of 30,522: 436 MB of
weights) and vgg11.onnx (a 224 × 224 image: 531 MB). `run --models DIRECTORY --questions model` then compares them.
"""

import sys
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


class Model:
    """A graph that grows node by node; values are known by their names."""

    def __init__(self):
        self.nodes, self.weights = [], []
        self.random = numpy.random.default_rng(1)

    def weight(self, *shape):
        scale = numpy.float32(0.5 / numpy.sqrt(shape[0] if len(shape) < 4 else numpy.prod(shape[1:])))
        array = self.random.standard_normal(shape, dtype=numpy.float32) * scale
        return self.constant(array)

    def constant(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{kind}{len(self.nodes)}", **attributes))
        return name

    def dense(self, x, rows, columns):
        return self.node("Add", self.node("MatMul", x, self.weight(rows, columns)), self.weight(columns))

    def save(self, file, given, shape, made):
        of = lambda name, kind, dims: helper.make_tensor_value_info(name, kind, dims)
        kind = TensorProto.INT64 if given == "tokens" else TensorProto.FLOAT
        graph = helper.make_graph(self.nodes, file.stem, [of(given, kind, shape)], [of(made, TensorProto.FLOAT, None)],
                                  self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))


def bert(file, layers=12, width=768, heads=12, tokens=128, vocabulary=30522):
    model = Model()
    shape = model.constant(numpy.array([1, tokens, heads, width // heads], numpy.int64))
    flat = model.constant(numpy.array([1, tokens, width], numpy.int64))
    scale = model.constant(numpy.float32((width // heads) ** -0.5))
    half, one = model.constant(numpy.float32(0.5)), model.constant(numpy.float32(1))
    root = model.constant(numpy.float32(2**0.5))
    normal = lambda x: model.node("LayerNormalization", x, model.weight(width), model.weight(width), axis=-1)
    split = lambda x, perm: model.node("Transpose", model.node("Reshape", model.dense(x, width, width), shape), perm=perm)
    x = normal(model.node("Add", model.node("Gather", model.weight(vocabulary, width), "tokens"), model.weight(tokens, width)))
    for _ in range(layers):
        q, k, v = split(x, [0, 2, 1, 3]), split(x, [0, 2, 3, 1]), split(x, [0, 2, 1, 3])
        scores = model.node("Softmax", model.node("Mul", model.node("MatMul", q, k), scale), axis=-1)
        mixed = model.node("Transpose", model.node("MatMul", scores, v), perm=[0, 2, 1, 3])
        x = normal(model.node("Add", x, model.dense(model.node("Reshape", mixed, flat), width, width)))
        y = model.dense(x, width, 4 * width)
        gate = model.node("Add", model.node("Erf", model.node("Div", y, root)), one)
        y = model.node("Mul", model.node("Mul", y, gate), half)
        x = normal(model.node("Add", x, model.dense(y, 4 * width, width)))
    model.save(file, "tokens", [1, tokens], x)


def vgg(file):
    model, x, channels = Model(), "image", 3
    for size in [64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"]:
        if size == "pool":
            x = model.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        else:
            window = model.weight(size, channels, 3, 3)
            x = model.node("Relu", model.node("Conv", x, window, model.weight(size), pads=[1, 1, 1, 1]))
            channels = size
    x, size = model.node("Flatten", x), 512 * 7 * 7
    for width in [4096, 4096]:
        x, size = model.node("Relu", model.dense(x, size, width)), width
    model.save(file, "image", [1, 3, 224, 224], model.dense(x, size, 1000))


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    bert(directory / "bert12.onnx")
    vgg(directory / "vgg11.onnx")
