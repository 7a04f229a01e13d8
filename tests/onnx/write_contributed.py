"""Writes tests of operators of the domain `com.microsoft` to a folder, beside those of `write_suite.py`.

    python tests/onnx/write_contributed.py target/onnx-suite

The standard has no tests of these: inputs are random, from a seed, and the expected outputs are those of ONNX Runtime on the CPU.
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

random = np.random.default_rng(1)


def f(*dims):
    return random.standard_normal(dims).astype(np.float32)


def i(low, high, *dims, dtype=np.int32):
    return random.integers(low, high, dims).astype(dtype)


def attentions():
    """Attention in its packed, projected, padded and grouped forms, and convolutions with an end."""
    own = np.random.default_rng(2)

    def g(*dims):
        return own.standard_normal(dims).astype(np.float32)

    x, weights, bias = g(2, 5, 12), g(12, 72), g(72)
    heads = {"num_heads": 3}
    lengths, mask = np.array([3, 5], np.int32), np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]], np.int32)
    yield "attention", "Attention", [x, weights, bias], 1, heads
    yield "attention_lengths", "Attention", [x, weights, bias, lengths], 1, heads
    yield "attention_mask", "Attention", [x, weights, bias, mask], 1, {**heads, "scale": 0.2}
    yield "attention_causal", "Attention", [x, weights, bias], 1, {**heads, "unidirectional": 1}
    past = g(2, 2, 3, 4, 8)
    yield "attention_past", "Attention", [x, weights, bias, None, past], 2, {**heads, "unidirectional": 1}
    yield "attention_sizes", "Attention", [x, g(12, 60), g(60)], 1, {**heads, "qkv_hidden_sizes": [24, 24, 12]}
    yield "attention_scores", "Attention", [x, weights, bias, None, None, g(2, 3, 5, 5)], 1, heads
    qkv = [g(2, 4, 24), g(2, 6, 24), g(2, 6, 24)]
    padding = np.array([[1, 1, 1, 1, 0, 0], [1] * 6], np.int32)
    yield "multi_head_padding", "MultiHeadAttention", [*qkv, None, padding], 1, heads
    groups = {"num_heads": 4, "kv_num_heads": 2}
    new = [g(2, 5, 64), g(2, 5, 32), g(2, 5, 32)]
    whole, total = np.array([4, 4], np.int32), np.array(5, np.int32)
    yield "grouped", "GroupQueryAttention", [*new, None, None, whole, total], 3, groups
    angles = g(16, 8)
    caches = [np.cos(angles), np.sin(angles)]
    turned = {**groups, "do_rotary": 1, "scale": 0.4}
    yield "grouped_rotary", "GroupQueryAttention", [*new, None, None, whole, total, *caches], 3, turned
    packed = [g(2, 5, 128), None, None, None, None, whole, total]
    yield "grouped_packed", "GroupQueryAttention", packed, 3, {**groups, "local_window_size": 2}
    kept, last, more = [g(2, 2, 6, 16), g(2, 2, 6, 16)], np.array([6, 6], np.int32), np.array(7, np.int32)
    one = [g(2, 1, 64), g(2, 1, 32), g(2, 1, 32)]
    yield "grouped_past", "GroupQueryAttention", [*one, *kept, last, more, *caches], 3, {**groups, "do_rotary": 1}
    yield "grouped_cap", "GroupQueryAttention", [*one, *kept, last, more], 3, {**groups, "softcap": 5.0}
    image, filters = g(1, 3, 6, 6), [g(4, 3, 3, 3), g(4)]
    padded = {"pads": [1, 1, 1, 1], "activation": "Relu"}
    yield "fused_conv", "FusedConv", [image, *filters], 1, padded
    yield "fused_conv_sum", "FusedConv", [image, *filters, g(1, 4, 6, 6)], 1, padded
    ends = {"pads": [1, 1, 1, 1], "activation": "Clip", "activation_params": [-0.5, 0.7]}
    yield "fused_conv_clip", "FusedConv", [image, *filters], 1, ends
    yield "fused_gemm", "FusedGemm", [g(3, 5), g(5, 4), g(4)], 1, {"activation": "LeakyRelu", "activation_alpha": 0.2}


def cases():
    """Name, operator, inputs (None where one is left out), number of outputs, attributes."""
    yield "gelu", "Gelu", [f(2, 3, 8)], 1, {}
    yield "bias_gelu", "BiasGelu", [f(2, 3, 8), f(8)], 1, {}
    yield "fast_gelu", "FastGelu", [f(2, 3, 8)], 1, {}
    yield "fast_gelu_bias", "FastGelu", [f(2, 3, 8), f(8)], 1, {}
    yield "quick_gelu", "QuickGelu", [f(2, 3, 8)], 1, {"alpha": 1.5}
    yield "fused_matmul", "FusedMatMul", [f(2, 3, 4), f(2, 4, 5)], 1, {"alpha": 0.5}
    yield "fused_matmul_transposed", "FusedMatMul", [f(2, 4, 3), f(2, 5, 4)], 1, {"transA": 1, "transB": 1}
    yield "skip_layer_norm", "SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)], 1, {"epsilon": 1e-5}
    yield "skip_layer_norm_sum", "SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8)], 4, {}
    yield "skip_rms_norm", "SkipSimplifiedLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8)], 4, {"epsilon": 1e-6}
    words, segments = i(0, 11, 2, 5), i(0, 2, 2, 5)
    tables = [f(11, 8), f(7, 8), f(2, 8), f(8), f(8)]
    yield "embed_layer_norm", "EmbedLayerNormalization", [words, segments, *tables], 2, {}
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    yield "embed_layer_norm_mask", "EmbedLayerNormalization", [words, segments, *tables, mask], 2, {}
    angles = f(16, 4)
    caches = [np.cos(angles), np.sin(angles)]
    start, positions = np.array([3], np.int64), i(0, 16, 2, 5, dtype=np.int64)
    yield "rotary_start", "RotaryEmbedding", [f(2, 5, 24), start, *caches], 1, {}
    yield "rotary_positions", "RotaryEmbedding", [f(2, 3, 5, 8), positions, *caches], 1, {"interleaved": 1}
    qkv = [f(2, 4, 24), f(2, 6, 24), f(2, 6, 24)]
    yield "multi_head", "MultiHeadAttention", qkv, 1, {"num_heads": 3}
    yield "multi_head_bias", "MultiHeadAttention", [*qkv, f(72)], 1, {"num_heads": 3, "scale": 0.3}
    same = [f(2, 4, 24) for _ in range(3)]
    yield "multi_head_causal", "MultiHeadAttention", same, 1, {"num_heads": 3, "unidirectional": 1}
    biased = [*qkv, None, None, f(2, 3, 4, 6)]
    yield "multi_head_scores", "MultiHeadAttention", biased, 1, {"num_heads": 3}
    past = [*same, None, None, None, f(2, 3, 5, 8), f(2, 3, 5, 8)]
    yield "multi_head_past", "MultiHeadAttention", past, 3, {"num_heads": 3}
    yield from attentions()
    narrow = {"K": 40, "N": 6, "bits": 4, "block_size": 16}
    weights, scales = i(0, 256, 6, 3, 8, dtype=np.uint8), np.abs(f(18))
    yield "narrow_matmul", "MatMulNBits", [f(2, 3, 40), weights, scales], 1, narrow
    zeros = i(0, 256, 12, dtype=np.uint8)
    yield "narrow_matmul_zeros", "MatMulNBits", [f(2, 3, 40), weights, scales, zeros], 1, narrow
    for bits, block, rows, depth, columns in [(4, 32, 1, 300, 70), (4, 128, 9, 256, 65), (8, 64, 3, 200, 33), (8, 256, 1, 512, 20),
                                              (4, 16, 2, 47, 130), (2, 64, 1, 192, 48)]:
        blocks = -(-depth // block)
        weights = i(0, 256, columns, blocks, block * bits // 8, dtype=np.uint8)
        scales = np.abs(f(columns, blocks))
        zeros = i(0, 256, columns, -(-blocks * bits // 8), dtype=np.uint8)
        sizes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
        for zero_points in ([], [zeros]):
            name = f"narrow_matmul_{bits}_{block}{'_zeros' if zero_points else ''}_constant"
            yield name, "MatMulNBits", [f(rows, depth), weights, scales, *zero_points], 1, sizes
    yield from on_grids()


def grid(scale, zero, dtype=np.uint8):
    return [np.array(scale, np.float32), np.array(zero, dtype)]


def on_grids():
    """Operators between numbers on grids of 8-bit integers."""
    x = [i(0, 256, 2, 3, 6, 6, dtype=np.uint8), *grid(0.05, 120)]
    row = [i(0, 256, 1, 3, 1, 6, dtype=np.uint8), *grid(0.02, 7)]
    signed = [i(-128, 128, 4, 5, dtype=np.int8), *grid(0.03, -5, np.int8)]
    yield "grid_add", "QLinearAdd", [*x, *row, *grid(0.07, 100)], 1, {}
    yield "grid_mul", "QLinearMul", [*x, *row, *grid(0.11, 90)], 1, {}
    yield "grid_sigmoid", "QLinearSigmoid", [*x, *grid(1 / 256, 0)], 1, {}
    yield "grid_leaky_relu", "QLinearLeakyRelu", [*signed, *grid(0.03, -60, np.int8)], 1, {"alpha": 0.1}
    yield "grid_softmax", "QLinearSoftmax", [*signed, *grid(1 / 256, -128, np.int8)], 1, {"axis": -1, "opset": 13}
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    # Scales of which no mean lies half-way between two numbers of the grid: there ONNX Runtime rounds by the errors of its sums.
    yield "grid_average_pool", "QLinearAveragePool", [*x, *grid(0.041, 118)], 1, window
    yield "grid_global_pool", "QLinearGlobalAveragePool", [*x, *grid(0.013, 100)], 1, {"channels_last": 0}
    yield "grid_concat", "QLinearConcat", [*grid(0.06, 110), *x, *x], 1, {"axis": 1}
    condition = i(0, 2, 4, 5).astype(bool)
    yield "grid_where", "QLinearWhere", [condition, *signed, *signed, *grid(0.04, 3, np.int8)], 1, {}
    weights = [i(-128, 128, 3, 5, dtype=np.int8), np.abs(f(3)) / 50, np.zeros(3, np.int8)]
    bias = i(-900, 900, 3)
    yield "grid_gemm", "QGemm", [*signed, *weights, bias, *grid(0.09, 11, np.int8)], 1, {"transB": 1}
    yield "grid_gemm_float", "QGemm", [*signed, *weights, bias], 1, {"transB": 1}
    steps, bias, lost = f(3, 2, 6), f(2, 32), [None] * 4
    rows = [i(-128, 128, 2, 6, 16, dtype=np.int8), i(-128, 128, 2, 4, 16, dtype=np.int8)]
    scales = [np.array([0.004, 0.005], np.float32), np.zeros(2, np.int8)]
    shape = {"hidden_size": 4, "direction": "bidirectional"}
    yield "grid_lstm", "DynamicQuantizeLSTM", [steps, *rows, bias, *lost, *scales, *scales], 3, shape


def write(root, name, operator, inputs, outputs, attributes):
    names = [f"input_{at}" if value is not None else "" for at, value in enumerate(inputs)]
    # Of several outputs the first and the last are read; attention's three are.
    made = [f"output_{at}" if at in (0, outputs - 1) or outputs == 3 else "" for at in range(outputs)]
    node = helper.make_node(operator, names, made, domain="com.microsoft", **attributes)
    given = [(name, value) for name, value in zip(names, inputs) if value is not None]
    # Weights are constants of models whose names say so.
    held = [numpy_helper.from_array(value, name) for name, value in given[1:]] if name.endswith("constant") else []
    given = given[:1] if held else given
    declared = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    untyped = [onnx.ValueInfoProto(name=n) for n in made if n]
    graph = helper.make_graph([node], name, declared, untyped, initializer=held)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, dict(given))
    # ONNX Runtime knows the outputs' types by itself; a sound model declares them.
    for info, value in zip(model.graph.output, expected):
        info.CopyFrom(helper.make_tensor_value_info(info.name, helper.np_dtype_to_tensor_dtype(value.dtype), None))
    folder = root / "contributed" / f"test_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    data_set = folder / "test_data_set_0"
    data_set.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    # ONNX Runtime rounds the inputs of this layer to 8 bits in each step.
    tolerance = {"rtol": 1e-3, "atol": 2e-2 if operator == "DynamicQuantizeLSTM" else 1e-5}
    (folder / "data.json").write_text(json.dumps(tolerance) + "\n")
    for role, values in (("input", [value for _, value in given]), ("output", expected)):
        for at, value in enumerate(values):
            (data_set / f"{role}_{at}.pb").write_bytes(numpy_helper.from_array(value).SerializeToString())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for case in cases():
        write(pathlib.Path(sys.argv[1]), *case)
