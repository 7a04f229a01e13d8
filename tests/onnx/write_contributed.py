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
from onnx import TensorProto, helper, numpy_helper

random = np.random.default_rng(1)


def f(*dims):
    return random.standard_normal(dims).astype(np.float32)


def i(low, high, *dims, dtype=np.int32):
    return random.integers(low, high, dims).astype(dtype)


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
    narrow = {"K": 40, "N": 6, "bits": 4, "block_size": 16}
    weights, scales = i(0, 256, 6, 3, 8, dtype=np.uint8), np.abs(f(18))
    yield "narrow_matmul", "MatMulNBits", [f(2, 3, 40), weights, scales], 1, narrow
    zeros = i(0, 256, 12, dtype=np.uint8)
    yield "narrow_matmul_zeros", "MatMulNBits", [f(2, 3, 40), weights, scales, zeros], 1, narrow


def write(root, name, operator, inputs, outputs, attributes):
    names = [f"input_{at}" if value is not None else "" for at, value in enumerate(inputs)]
    # Of several outputs the first and the last are read; attention's three are.
    made = [f"output_{at}" if at in (0, outputs - 1) or outputs == 3 else "" for at in range(outputs)]
    node = helper.make_node(operator, names, made, domain="com.microsoft", **attributes)
    given = [(name, value) for name, value in zip(names, inputs) if value is not None]
    declared = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given]
    integers = operator == "EmbedLayerNormalization"
    kinds = {at: TensorProto.INT32 if integers and at == 1 else TensorProto.FLOAT for at in range(outputs)}
    results = [helper.make_tensor_value_info(n, kinds[at], None) for at, n in enumerate(made) if n]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], name, declared, results)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, dict(given))
    folder = root / "contributed" / f"test_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    data_set = folder / "test_data_set_0"
    data_set.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "data.json").write_text(json.dumps({"rtol": 1e-3, "atol": 1e-5}) + "\n")
    for role, values in (("input", [value for _, value in given]), ("output", expected)):
        for at, value in enumerate(values):
            (data_set / f"{role}_{at}.pb").write_bytes(numpy_helper.from_array(value).SerializeToString())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for case in cases():
        write(pathlib.Path(sys.argv[1]), *case)
