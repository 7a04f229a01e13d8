"""Writes the small ONNX models in this directory and, beside each, inputs with ONNX Runtime's outputs.

    pip install onnx==1.23.2 onnxruntime==1.31.1 numpy
    python3 generate.py [NAME …]

The graphs are written by hand in the shapes that PyTorch's two exporters produce: names with slashes, `Constant` nodes
and `Shape → Gather → Unsqueeze → Concat → Reshape` chains as the TorchScript exporter makes them ("traced" below),
initializers for constants and names like `val_3` as the dynamo exporter makes them. Weights are drawn from
generators seeded with the model's name, so the models come out the same bytes again; the outputs agree with those of
another machine to within rounding.
"""

import math
import pathlib
import sys
import zlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).parent
F32, I64 = TensorProto.FLOAT, TensorProto.INT64


class Graph:
    """A graph in the making: `node` and its relatives add a node and return the name of its output."""

    def __init__(self, name, opset=17, traced=True):
        self.name, self.opset, self.traced = name, opset, traced
        self.random = np.random.default_rng(zlib.crc32(name.encode()))
        self.nodes, self.initializers, self.inputs, self.outputs, self.data = [], [], [], [], {}
        self.scopes, self.counts = [], {}

    def scope(self, name):
        """Names of nodes within the `with` block begin with `name`, as a module's do."""
        graph = self

        class Scope:
            def __enter__(self):
                graph.scopes.append(name)

            def __exit__(self, *_):
                graph.scopes.pop()

        return Scope()

    def input(self, name, shape, data):
        kind = helper.np_dtype_to_tensor_dtype(data.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        self.data[name] = data
        return name

    def output(self, value, name, shape, kind=F32):
        """Declares `value` an output, renaming the node's output to `name`."""
        for node in self.nodes:
            node.output[:] = [name if made == value else made for made in node.output]
            node.input[:] = [name if read == value else read for read in node.input]
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def nodes_of(self, op, inputs, count, **attributes):
        path = "/".join(["", *self.scopes, op])
        number = self.counts[path] = self.counts.get(path, -1) + 1
        if self.traced:
            name = path if number == 0 else f"{path}_{number}"
            made = [f"{name}_output_{index}" for index in range(count)]
        else:
            total = self.counts["val"] = self.counts.get("val", -1) + count
            name = f"node_{op}_{len(self.nodes)}"
            made = [f"val_{total - count + 1 + index}" for index in range(count)]
        self.nodes.append(helper.make_node(op, inputs, made, name=name, **attributes))
        return made

    def node(self, op, *inputs, **attributes):
        return self.nodes_of(op, list(inputs), 1, **attributes)[0]

    def constant(self, value, dtype=np.int64):
        """A constant: a node of its own from the TorchScript exporter, an initializer from the other."""
        array = np.asarray(value, dtype=dtype)
        if self.traced:
            return self.node("Constant", value=numpy_helper.from_array(array))
        return self.initializer(f"val_c{len(self.initializers)}", array)

    def initializer(self, name, array):
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def weight(self, name, *shape, scale=None):
        """A weight that keeps the variance of what it multiplies, a rectifier between."""
        scale = math.sqrt(2 / math.prod(shape[1:])) if scale is None else scale
        return self.initializer(".".join([*self.scopes, name]), self.normal(*shape) * np.float32(scale))

    def positive(self, name, *shape):
        array = self.random.uniform(0.5, 1.5, shape).astype(np.float32)
        return self.initializer(".".join([*self.scopes, name]), array)

    def normal(self, *shape):
        return self.random.standard_normal(shape).astype(np.float32)

    def dim(self, value, axis):
        """One dimension of `value` as a vector of one element, the TorchScript exporter's way."""
        size = self.node("Gather", self.node("Shape", value), self.constant(axis), axis=0)
        return self.node("Unsqueeze", size, self.constant([0]))

    def reshape(self, value, *dims):
        """Reshape to `dims`: integers, or names of one-element vectors."""
        if all(isinstance(dim, int) for dim in dims):
            return self.node("Reshape", value, self.constant(list(dims)))
        parts = [self.constant([dim]) if isinstance(dim, int) else dim for dim in dims]
        return self.node("Reshape", value, self.node("Concat", *parts, axis=0))

    def conv(self, name, value, channels_in, channels_out, kernel, stride=1, group=1, bias=True, pad=None):
        pad = kernel // 2 if pad is None else pad
        with self.scope(name):
            inputs = [value, self.weight("weight", channels_out, channels_in // group, kernel, kernel)]
            if bias:
                inputs.append(self.weight("bias", channels_out, scale=0.1))
            return self.node(
                "Conv",
                *inputs,
                dilations=[1, 1],
                group=group,
                kernel_shape=[kernel] * 2,
                pads=[pad] * 4,
                strides=[stride] * 2,
            )

    def max_pool(self, value, pad, round_up):
        window = {"kernel_shape": [3, 3], "dilations": [1, 1], "strides": [2, 2], "pads": [pad] * 4}
        return self.node("MaxPool", value, ceil_mode=round_up, **window)

    def resize(self, value, mode, coordinates, scales="", sizes=""):
        """A Resize with all the attributes that the TorchScript exporter writes."""
        inputs = [value, "", scales, sizes] if sizes else [value, "", scales]
        return self.node(
            "Resize",
            *inputs,
            coordinate_transformation_mode=coordinates,
            cubic_coeff_a=-0.75,
            mode=mode,
            nearest_mode="floor",
        )

    def linear(self, name, value, features_in, features_out):
        """A linear layer on vectors: one Gemm."""
        with self.scope(name):
            weight = self.weight("weight", features_out, features_in)
            bias = self.weight("bias", features_out, scale=0.1)
            return self.node("Gemm", value, weight, bias, alpha=1.0, beta=1.0, transB=1)

    def project(self, name, value, features_in, features_out):
        """A linear layer on sequences: MatMul and Add, bias first."""
        with self.scope(name):
            weight = self.normal(features_in, features_out) / np.float32(math.sqrt(features_in))
            weight = self.initializer(f"onnx::MatMul_{len(self.initializers)}", weight)
            bias = self.weight("bias", features_out, scale=0.1)
            return self.node("Add", bias, self.node("MatMul", value, weight))

    def layer_norm(self, name, value, features):
        with self.scope(name):
            scale, bias = self.positive("weight", features), self.weight("bias", features, scale=0.1)
            return self.node("LayerNormalization", value, scale, bias, axis=-1, epsilon=1e-5)

    def gelu(self, value):
        """The exact Gelu, by the error function, as exported before Gelu was an operator."""
        erf = self.node("Erf", self.node("Div", value, self.constant(math.sqrt(2), np.float32)))
        product = self.node("Mul", value, self.node("Add", erf, self.constant(1, np.float32)))
        return self.node("Mul", product, self.constant(0.5, np.float32))

    def silu(self, value):
        return self.node("Mul", value, self.node("Sigmoid", value))

    def model(self):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.initializers)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=8 if self.traced else 10,
            producer_name="anabranch-generate",
            producer_version="1",
        )
        onnx.checker.check_model(model, full_check=True)
        return model


def mlp(name="mlp"):
    """Three linear layers; the batch is symbolic."""
    g = Graph(name)
    x = g.input("x", ["batch", 16], g.normal(4, 16))
    x = g.node("Relu", g.linear("fc1", x, 16, 32))
    x = g.node("Relu", g.linear("fc2", x, 32, 32))
    g.output(g.linear("fc3", x, 32, 10), "logits", ["batch", 10])
    return g


def convnet():
    """Residual blocks: convolutions, one batch normalisation that was not folded, pooling, one linear layer."""
    g = Graph("convnet")
    x = g.input("image", [1, 3, 32, 32], g.normal(1, 3, 32, 32))
    x = g.conv("conv1", x, 3, 16, 3, bias=False)
    with g.scope("bn1"):
        parameters = [g.positive("weight", 16), g.weight("bias", 16, scale=0.1)]
        parameters += [g.weight("running_mean", 16, scale=0.1), g.positive("running_var", 16)]
        x = g.node("BatchNormalization", x, *parameters, epsilon=1e-5, momentum=0.9)
    x = g.node("Relu", x)
    x = g.max_pool(x, pad=1, round_up=0)
    for layer, channels_in, channels_out in [("layer1", 16, 16), ("layer2", 16, 32)]:
        stride = channels_out // channels_in
        with g.scope(layer):
            y = g.node("Relu", g.conv("conv1", x, channels_in, channels_out, 3, stride))
            y = g.conv("conv2", y, channels_out, channels_out, 3)
            if stride > 1:
                x = g.conv("downsample", x, channels_in, channels_out, 1, stride)
            x = g.node("Relu", g.node("Add", y, x))
    x = g.node("Flatten", g.node("GlobalAveragePool", x), axis=1)
    g.output(g.linear("fc", x, 32, 10), "logits", [1, 10])
    return g


def mobile():
    """Inverted residuals as the dynamo exporter writes them: depthwise convolutions, Clip with constant bounds."""
    g = Graph("mobile", opset=18, traced=False)

    def relu6(value):
        return g.node("Clip", value, "zero", "six")

    g.initializer("zero", np.float32(0))
    g.initializer("six", np.float32(6))
    x = g.input("image", ["batch", 3, 32, 32], g.normal(2, 3, 32, 32))
    x = relu6(g.conv("features.0", x, 3, 8, 3, 2))
    for index, (channels_in, channels_out, stride) in enumerate([(8, 12, 2), (12, 12, 1)], start=1):
        hidden = 6 * channels_in
        y = relu6(g.conv(f"features.{index}.expand", x, channels_in, hidden, 1))
        y = relu6(g.conv(f"features.{index}.depthwise", y, hidden, hidden, 3, stride, group=hidden))
        y = g.conv(f"features.{index}.project", y, hidden, channels_out, 1)
        x = g.node("Add", x, y) if channels_in == channels_out and stride == 1 else y
    x = relu6(g.conv("features.3", x, 12, 48, 1))
    x = g.node("ReduceMean", x, g.constant([-1, -2]), keepdims=1)
    x = g.node("Reshape", x, g.constant([-1, 48]), allowzero=0)
    g.output(g.linear("classifier", x, 48, 10), "logits", ["batch", 10])
    return g


def fire():
    """Squeeze and expand: concatenated branches, pooling that rounds up, average pooling."""
    g = Graph("fire", opset=13)
    x = g.input("image", [1, 3, 33, 33], g.normal(1, 3, 33, 33))
    x = g.node("Relu", g.conv("features.0", x, 3, 16, 3, 2, pad=0))
    for index, channels_in in [(1, 16), (2, 32)]:
        with g.scope(f"features.{index}"):
            x = g.max_pool(x, pad=0, round_up=1)
            x = g.node("Relu", g.conv("squeeze", x, channels_in, 8, 1))
            branches = [g.node("Relu", g.conv(f"expand{kernel}x{kernel}", x, 8, 16, kernel)) for kernel in (1, 3)]
            x = g.node("Concat", *branches, axis=1)
    x = g.node("AveragePool", x, count_include_pad=1, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])
    x = g.node("Relu", g.conv("classifier", x, 32, 10, 1))
    x = g.node("Flatten", g.node("GlobalAveragePool", x), axis=1)
    g.output(g.node("Softmax", x, axis=1), "probabilities", [1, 10])
    return g


def attention(g, x, features, heads, mask=None):
    """Multi-head attention as traced with dynamic shapes, scaled on both factors by the root of the root."""
    batch, length = g.dim(x, 0), g.dim(x, 1)
    qkv = g.project("in_proj", x, features, 3 * features)
    qkv = g.reshape(qkv, batch, length, 3, heads, features // heads)
    qkv = g.node("Transpose", qkv, perm=[2, 0, 3, 1, 4])
    q, k, v = (g.node("Gather", qkv, g.constant(index), axis=0) for index in range(3))
    last = g.node("Slice", g.node("Shape", q), g.constant([-1]), g.constant([2**63 - 1]))
    root = g.node("Sqrt", g.node("Cast", last, to=F32))
    scale = g.node("Sqrt", g.node("Div", g.constant([1.0], np.float32), root))
    k = g.node("Transpose", k, perm=[0, 1, 3, 2])
    scores = g.node("MatMul", g.node("Mul", q, scale), g.node("Mul", k, scale))
    if mask is not None:
        scores = g.node("Add", scores, mask)
    y = g.node("MatMul", g.node("Softmax", scores, axis=-1), v)
    y = g.reshape(g.node("Transpose", y, perm=[0, 2, 1, 3]), batch, length, features)
    return g.project("out_proj", y, features, features)


def decomposed_layer_norm(g, name, value, features):
    """Layer normalisation as exported before it was an operator."""
    with g.scope(name):
        centred = g.node("Sub", value, g.node("ReduceMean", value, axes=[-1]))
        squares = g.node("Pow", centred, g.constant(2, np.float32))
        variance = g.node("Add", g.node("ReduceMean", squares, axes=[-1]), g.constant(1e-5, np.float32))
        scaled = g.node("Div", centred, g.node("Sqrt", variance))
        scaled = g.node("Mul", scaled, g.positive("weight", features))
        return g.node("Add", scaled, g.weight("bias", features, scale=0.1))


def encoder():
    """A transformer encoder layer with symbolic batch and length, a padding mask, and a pooled second output."""
    g, features = Graph("encoder"), 32
    x = g.input("x", ["batch", "seq", features], g.normal(2, 7, features))
    padding = np.array([[1] * 7, [1] * 5 + [0] * 2], dtype=np.int64)
    mask = g.input("mask", ["batch", "seq"], padding)
    mask = g.node("Unsqueeze", g.node("Unsqueeze", mask, g.constant([1])), g.constant([2]))
    mask = g.node("Sub", g.constant(1, np.float32), g.node("Cast", mask, to=F32))
    mask = g.node("Mul", mask, g.constant(np.finfo(np.float32).min, np.float32))
    with g.scope("layer"):
        with g.scope("self_attn"):
            y = attention(g, x, features, 4, mask)
        x = g.layer_norm("norm1", g.node("Add", x, y), features)
        y = g.project("linear2", g.gelu(g.project("linear1", x, features, 64)), 64, features)
        x = decomposed_layer_norm(g, "norm2", g.node("Add", x, y), features)
    first = g.node("Gather", x, g.constant(0), axis=1)
    pooled = g.node("Tanh", g.linear("pooler", first, features, features))
    g.output(x, "hidden", ["batch", "seq", features])
    g.output(pooled, "pooled", ["batch", features])
    return g


def decoder():
    """A language model's layer on token numbers: embedding, positions by Range, a causal mask, tied output weights."""
    g, features, words = Graph("decoder", opset=16), 32, 64
    ids = g.input("ids", ["batch", "seq"], g.random.integers(0, words, (2, 6)))
    table = g.weight("wte.weight", words, features, scale=1)
    length = g.node("Gather", g.node("Shape", ids), g.constant(1), axis=0)
    positions = g.node("Unsqueeze", g.node("Range", g.constant(0), length, g.constant(1)), g.constant([0]))
    place = g.node("Gather", g.weight("wpe.weight", 16, features, scale=0.3), positions)
    x = g.node("Add", g.node("Gather", table, ids), place)
    side = g.node("Unsqueeze", length, g.constant([0]))
    square = g.node("Concat", side, side, axis=0)
    ones = g.node("ConstantOfShape", square, value=numpy_helper.from_array(np.array([1], dtype=np.float32)))
    future = g.node("Cast", g.node("Trilu", ones, g.constant(1), upper=1), to=TensorProto.BOOL)
    mask = g.node("Where", future, g.constant(-10000, np.float32), g.constant(0, np.float32))
    with g.scope("h.0"):
        with g.scope("attn"):
            y = attention(g, decomposed_layer_norm(g, "ln_1", x, features), features, 2, mask)
        x = g.node("Add", x, y)
        y = g.project("c_fc", decomposed_layer_norm(g, "ln_2", x, features), features, 64)
        # Gelu by the hyperbolic tangent.
        cube = g.node("Mul", g.node("Pow", y, g.constant(3, np.float32)), g.constant(0.044715, np.float32))
        inner = g.node("Mul", g.node("Add", y, cube), g.constant(math.sqrt(2 / math.pi), np.float32))
        half = g.node("Mul", y, g.constant(0.5, np.float32))
        y = g.node("Mul", half, g.node("Add", g.node("Tanh", inner), g.constant(1, np.float32)))
        x = g.node("Add", x, g.project("c_proj", y, 64, features))
    logits = g.node("MatMul", x, g.node("Transpose", table, perm=[1, 0]))
    g.output(logits, "logits", ["batch", "seq", words])
    return g


def vit():
    """Image patches to tokens, a class token that is expanded and concatenated, Split, the Gelu operator."""
    g, features, heads = Graph("vit", opset=20, traced=False), 32, 4
    image = g.input("image", ["batch", 3, 16, 16], g.normal(2, 3, 16, 16))
    x = g.conv("patch", image, 3, features, 4, 4, pad=0)
    batch = g.node("Shape", image, start=0, end=1)
    x = g.node("Reshape", x, g.node("Concat", batch, g.constant([features, 16]), axis=0), allowzero=1)
    x = g.node("Transpose", x, perm=[0, 2, 1])
    token = g.weight("cls_token", 1, 1, features, scale=1)
    token = g.node("Expand", token, g.node("Concat", batch, g.constant([1, 1]), axis=0))
    x = g.node("Add", g.node("Concat", token, x, axis=1), g.weight("pos_embed", 1, 17, features, scale=0.3))
    y = g.project("attn.qkv", g.layer_norm("norm1", x, features), features, 3 * features)
    parts = []
    for part in g.nodes_of("Split", [y], 3, axis=-1, num_outputs=3):
        shape = g.node("Concat", batch, g.constant([17, heads, features // heads]), axis=0)
        parts.append(g.node("Transpose", g.node("Reshape", part, shape), perm=[0, 2, 1, 3]))
    q, k, v = parts
    scores = g.node("MatMul", q, g.node("Transpose", k, perm=[0, 1, 3, 2]))
    scores = g.node("Mul", scores, g.constant(1 / math.sqrt(features // heads), np.float32))
    y = g.node("Transpose", g.node("MatMul", g.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    y = g.node("Reshape", y, g.constant([0, 0, -1]))
    x = g.node("Add", x, g.project("attn.proj", y, features, features))
    y = g.node("Gelu", g.project("mlp.fc1", g.layer_norm("norm2", x, features), features, 64))
    x = g.node("Add", x, g.project("mlp.fc2", y, 64, features))
    first = g.node("Slice", x, g.constant([0]), g.constant([1]), g.constant([1]), g.constant([1]))
    x = g.node("Squeeze", first, g.constant([1]))
    g.output(g.linear("head", x, features, 10), "logits", ["batch", 10])
    return g


def group_norm(g, name, value, channels, groups):
    """Group normalisation as the TorchScript exporter writes it."""
    with g.scope(name):
        parts = g.reshape(value, 0, groups, -1)
        ones, zeros = g.constant([1] * groups, np.float32), g.constant([0] * groups, np.float32)
        parts = g.node("InstanceNormalization", parts, ones, zeros, epsilon=1e-5)
        whole = g.node("Reshape", parts, g.node("Shape", value))
        scaled = g.node("Mul", whole, g.positive("weight", channels, 1, 1))
        return g.node("Add", scaled, g.weight("bias", channels, 1, 1, scale=0.1))


def unet():
    """Down and up again: group normalisation, nearest and linear resizing, a transposed convolution, skips."""
    g = Graph("unet")
    x = g.input("x", [1, 4, 16, 16], g.normal(1, 4, 16, 16))
    top = g.silu(group_norm(g, "norm_in", g.conv("conv_in", x, 4, 8, 3), 8, 4))
    middle = g.silu(group_norm(g, "norm_down", g.conv("down1", top, 8, 16, 3, 2), 16, 4))
    x = g.silu(g.conv("down2", middle, 16, 16, 3, 2))
    with g.scope("up1"):
        scales = g.constant([1, 1, 2, 2], np.float32)
        x = g.resize(x, "nearest", "asymmetric", scales=scales)
        x = g.silu(g.conv("conv", g.node("Concat", x, middle, axis=1), 32, 8, 3))
    with g.scope("up2"):
        shape = g.node("Slice", g.node("Shape", x), g.constant([0]), g.constant([2]), g.constant([0]))
        sizes = g.node("Concat", shape, g.constant([16, 16]), axis=0)
        smooth = g.resize(x, "linear", "half_pixel", sizes=sizes)
        weight = g.weight("weight", 8, 8, 2, 2)
        window = {"kernel_shape": [2, 2], "dilations": [1, 1], "strides": [2, 2], "pads": [0] * 4}
        sharp = g.node("ConvTranspose", x, weight, group=1, **window)
        x = g.node("Add", smooth, sharp)
    x = g.conv("conv_out", g.node("Concat", x, top, axis=1), 16, 4, 3)
    g.output(x, "y", [1, 4, 16, 16])
    return g


def zero_state(g, x, directions, hidden):
    """The initial state: zeros expanded to (directions, batch, hidden)."""
    shape = g.node("Concat", g.constant([directions]), g.dim(x, 1), g.constant([hidden]), axis=0)
    return g.node("Expand", g.constant(np.zeros((1, 1, 1)), np.float32), shape)


def gru():
    """A bidirectional GRU over a batch-first sequence, then a linear layer and LogSoftmax."""
    g, features, hidden = Graph("gru"), 12, 16
    x = g.input("x", ["batch", "time", features], g.normal(2, 9, features))
    x = g.node("Transpose", x, perm=[1, 0, 2])
    with g.scope("rnn"):
        state = zero_state(g, x, 2, hidden)
        weights = [
            g.weight("W", 2, 3 * hidden, features, scale=0.3),
            g.weight("R", 2, 3 * hidden, hidden, scale=0.3),
            g.weight("B", 2, 6 * hidden, scale=0.1),
        ]
        settings = {"direction": "bidirectional", "hidden_size": hidden, "linear_before_reset": 1}
        y, _ = g.nodes_of("GRU", [x, *weights, "", state], 2, **settings)
        y = g.node("Transpose", y, perm=[0, 2, 1, 3])
        y = g.reshape(y, 0, 0, -1)
    y = g.node("Transpose", y, perm=[1, 0, 2])
    y = g.node("LogSoftmax", g.project("fc", y, 2 * hidden, 10), axis=2)
    g.output(y, "y", ["batch", "time", 10])
    return g


def lstm():
    """Two layers of LSTM over a batch-first sequence; the last hidden and cell states are outputs too."""
    g, hidden = Graph("lstm"), 16
    x = g.input("x", ["batch", "time", 12], g.normal(2, 9, 12))
    y, features, states = g.node("Transpose", x, perm=[1, 0, 2]), 12, []
    for layer in range(2):
        with g.scope(f"lstm.{layer}"):
            zeros = [zero_state(g, y, 1, hidden) for _ in range(2)]
            weights = [
                g.weight("W", 1, 4 * hidden, features, scale=0.3),
                g.weight("R", 1, 4 * hidden, hidden, scale=0.3),
                g.weight("B", 1, 8 * hidden, scale=0.1),
            ]
            y, last, cell = g.nodes_of("LSTM", [y, *weights, "", *zeros], 3, hidden_size=hidden)
            y, features = g.node("Squeeze", y, g.constant([1])), hidden
            states.append((last, cell))
    last, cell = (g.node("Concat", *parts, axis=0) for parts in zip(*states))
    g.output(g.node("Transpose", y, perm=[1, 0, 2]), "y", ["batch", "time", hidden])
    g.output(last, "h", [2, "batch", hidden])
    g.output(cell, "c", [2, "batch", hidden])
    return g


def mlp_external():
    """The model `mlp` with its weights in another file."""
    return mlp("mlp_external")


def write(g):
    path, model = HERE / f"{g.name}.onnx", g.model()
    if g.name.endswith("_external"):
        (HERE / f"{g.name}.data").unlink(missing_ok=True)
        onnx.save(model, path, save_as_external_data=True, location=f"{g.name}.data", size_threshold=0)
        (HERE / f"{g.name}.data").chmod(0o644)
    else:
        onnx.save(model, path)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    results = session.run(None, g.data)
    arrays = {f"in__{name}": data for name, data in g.data.items()}
    arrays |= {f"out__{output.name}": data for output, data in zip(session.get_outputs(), results)}
    np.savez(HERE / f"{g.name}.npz", **arrays)
    print(f"{g.name}: {path.stat().st_size} bytes, {len(g.nodes)} nodes")
    for name, array in arrays.items():
        print(f"    {name} {array.dtype} {list(array.shape)}, standard deviation {array.std():.2f}")


MODELS = [mlp, mlp_external, convnet, mobile, fire, encoder, decoder, vit, unet, gru, lstm]

if __name__ == "__main__":
    for model in MODELS:
        if len(sys.argv) == 1 or model.__name__ in sys.argv[1:]:
            write(model())
