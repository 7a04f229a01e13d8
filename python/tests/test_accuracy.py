"""Operators of several steps: 16-bit floats are rounded once, and small results keep their digits."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import anabranch as ab


def run(op, inputs, opset=21, **attributes):
    """The result of a model of one node."""
    value = lambda name, array: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))
    constants = [helper.make_tensor(name, TensorProto.INT64, [len(given)], given) for name, given in inputs.items() if isinstance(given, list)]
    arrays = {name: given for name, given in inputs.items() if not isinstance(given, list)}
    made = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(arrays["x"].dtype), None)
    node = helper.make_node(op, list(inputs), ["y"], **attributes)
    graph = helper.make_graph([node], "g", [value(*item) for item in arrays.items()], [made], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return ab.Session(model, gpu=False).run(arrays)["y"]


STEPS = {
    "LpNormalization, 1": dict(op="LpNormalization", p=1),
    "LpNormalization, 2": dict(op="LpNormalization", p=2),
    "MeanVarianceNormalization": dict(op="MeanVarianceNormalization", axes=[1]),
    "LayerNormalization": dict(op="LayerNormalization", other=(7,)),
    "ReduceL1": dict(op="ReduceL1"),
    "ReduceL2": dict(op="ReduceL2"),
    "ReduceLogSum": dict(op="ReduceLogSum", positive=True),
    "ReduceLogSumExp": dict(op="ReduceLogSumExp"),
    "ReduceMean": dict(op="ReduceMean"),
    "Mean of 3": dict(op="Mean", other=(5, 7), third=True),
    "Sum of 3": dict(op="Sum", other=(5, 7), third=True),
    "Einsum of 3": dict(op="Einsum", other=(5, 7), third=True, equation="ij,ij,ij->i"),
    "Softplus": dict(op="Softplus"),
    "Mish": dict(op="Mish"),
}


@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
@pytest.mark.parametrize("name", STEPS)
def test_halves_are_single_floats_rounded_once(name, scale):
    case = dict(STEPS[name])
    op, other, third, positive = case.pop("op"), case.pop("other", None), case.pop("third", False), case.pop("positive", False)
    draw = np.random.default_rng(5)
    half = lambda dims: (draw.uniform(0.1 if positive else -1, 1, dims) * scale).astype(np.float16)
    inputs = {"x": half((5, 7))}
    if other:
        inputs["z"] = half(other)
    if third:
        inputs["w"] = half((5, 7))
    found = run(op, inputs, **case)
    with np.errstate(over="ignore"):
        want = run(op, {name: array.astype(np.float32) for name, array in inputs.items()}, **case).astype(np.float16)
    assert found.dtype == np.float16
    near = np.maximum(np.spacing(np.abs(want), dtype=np.float16), np.spacing(np.abs(found), dtype=np.float16))
    with np.errstate(invalid="ignore"):
        assert np.all((np.abs(found.astype(np.float32) - want) <= near) | (found == want)), (found, want)


def test_folded_columns_of_halves_are_rounded_once():
    x = (np.random.default_rng(5).uniform(-1, 1, (1, 18, 25))).astype(np.float16)
    columns = {"image": [7, 7], "block": [3, 3]}
    want = run("Col2Im", {"x": x.astype(np.float32), **columns}).astype(np.float16)
    assert np.array_equal(run("Col2Im", {"x": x, **columns}), want)


def test_small_results_keep_their_digits():
    x = np.array([-60, -30, -17, -16.7, -10, -1, 0, 1, 20, 90], np.float32)
    want = np.logaddexp(0, x.astype(np.float64))
    assert np.allclose(run("Softplus", {"x": x}), want, rtol=1e-6, atol=0)
    assert np.allclose(run("Mish", {"x": x}), x * np.tanh(want), rtol=2e-6, atol=0)
    near = 1 + np.array([2.3e-16, 4.4e-13, 1e-9, 1e-4, 1.0])
    assert np.allclose(run("Acosh", {"x": near}), np.arccosh(near), rtol=1e-14, atol=0)
