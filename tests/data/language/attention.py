"""Writes models of one attention over a cache each to `attention/`, with inputs and ONNX Runtime's outputs.

    pip install onnx==1.23.2 onnxruntime==1.31.1 numpy
    python3 attention.py

What lies in a cache beyond a row's length is no one's business: of `present` only positions that all rows have are compared.
"""

import pathlib

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

HERE = pathlib.Path(__file__).parent / "attention"
random = np.random.default_rng(11)


def floats(*dims):
    return random.standard_normal(dims).astype(np.float32)


def integers(*values):
    return np.array(values, np.int32)


def case(name, operator, inputs, attributes, cut):
    """One node; of the second and third output the first `cut` positions."""
    names = [f"i{at}" if value is not None else "" for at, value in enumerate(inputs)]
    nodes = [helper.make_node(operator, names, ["y", "p1", "p2"], name=name, domain="com.microsoft", **attributes)]
    nodes += [helper.make_node("Slice", [f"p{at}", "zero", "end", "axis"], [f"c{at}"]) for at in (1, 2)]
    bounds = (("zero", 0), ("end", cut), ("axis", 2))
    initializers = [helper.make_tensor(name, TensorProto.INT64, [1], [value]) for name, value in bounds]
    given = {name: value for name, value in zip(names, inputs) if name}
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in given.items()}
    declared = [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in given.items()]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "c1", "c2")]
    graph = helper.make_graph(nodes, name, declared, outputs, initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="anabranch").SerializeToString()
    made = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, given)
    assert all(np.isfinite(value).all() for value in made), name
    (HERE / f"{name}.onnx").write_bytes(model)
    members = {f"in__{name}": value for name, value in given.items()}
    members |= {f"out__{name}": value for name, value in zip(("y", "c1", "c2"), made)}
    np.savez(HERE / f"{name}.npz", **members)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    heads, depth = {"num_heads": 4, "kv_num_heads": 2}, 16
    turned = {**heads, "do_rotary": 1}
    angles = floats(24, depth // 2)
    caches = [np.cos(angles), np.sin(angles)]
    past = [floats(2, 2, 20, depth), floats(2, 2, 20, depth)]
    first = [part[:1] for part in past]

    def new(batch, length):
        return [floats(batch, length, count * depth) for count in (4, 2, 2)]

    group = "GroupQueryAttention"
    step, whole = [*new(2, 1), *past, integers(11, 6)], np.array(20, np.int32)
    case("step_window", group, [*step, whole, *caches], {**turned, "local_window_size": 5}, 7)
    bias = [None, None, None, floats(1, 4, 1, 20)]
    case("step_cap", group, [*step, whole, *bias], {**heads, "softcap": 2.0, "scale": 0.7}, 7)
    prompt = [*new(2, 6), *past, integers(5, 5), np.array(6, np.int32), *caches]
    case("prompt", group, prompt, {**turned, "rotary_interleaved": 1}, 6)
    case("more", group, [*new(1, 3), *first, integers(12), whole, *caches], turned, 13)
    parts = [floats(2, 2, 24) for _ in range(3)]
    masked = [None, np.array([[0, 1, 1, 1, 1, 1, 1], [1] * 7], np.int32), floats(1, 3, 2, 7)]
    kept = [floats(2, 3, 5, 8), floats(2, 3, 5, 8)]
    case("multi_head", "MultiHeadAttention", [*parts, *masked, *kept], {"num_heads": 3, "mask_filter_value": -50.0}, 7)
