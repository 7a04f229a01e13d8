"""The tests of the package `onnx`, by its own runner: those that the command passes, by the list in tests/onnx/passing.txt.

All of them where ANABRANCH_ALL_ONNX_TESTS is set, every eighth else: each opens a session of its own.
"""

import importlib.util
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import helper

import anabranch.backend
from anabranch.backend import AnabranchBackend

ONNX = Path(__file__).resolve().parents[2] / "tests" / "onnx"
# Kinds of tests in the list, with the classes of the package that hold them.
KINDS = {
    "node": "OnnxBackendNodeModelTest",
    "simple": "OnnxBackendSimpleModelTest",
    "operator": "OnnxBackendPyTorchOperatorModelTest",
    "converted": "OnnxBackendPyTorchConvertedModelTest",
    "light": "OnnxBackendRealModelTest",
}


class Strict(AnabranchBackend):
    """Without a way for a test to be passed over."""

    @classmethod
    def prepare(cls, model, device="CPU", **options):
        return super().prepare(model, device, threads=1, **options)

    @classmethod
    def is_compatible(cls, model, device="CPU", **options):
        return True


def listed():
    """The tests that the command passes, as pairs of class and method."""
    lines = (ONNX / "passing.txt").read_text().split()
    pairs = (line.split("/") for line in lines)
    return {(KINDS[kind], name.replace("test_light_", "test_") + "_cpu") for kind, name in pairs if kind in KINDS}


def tolerances():
    """The tolerances of tests whose expected outputs are rounding errors."""
    spec = importlib.util.spec_from_file_location("write_suite", ONNX / "write_suite.py")
    suite = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(suite)
    return {name: {"atol": atol} for name, atol in suite.ROUNDED.items()}


# Directory in which the package keeps its inputs for known networks.
os.environ["ONNX_MODELS"] = tempfile.mkdtemp(prefix="anabranch-onnx-")
runner = onnx.backend.test.BackendTest(Strict, __name__, tolerances())
there = {(kind, name) for kind, tests in runner.test_cases.items() for name in dir(tests) if name.startswith("test_")}
chosen = sorted(listed())[:: 1 if "ANABRANCH_ALL_ONNX_TESTS" in os.environ else 8]
left_out = sorted(name for kind, name in there - set(chosen))
runner.exclude(f"^({'|'.join(map(re.escape, left_out))})$")
globals().update(runner.test_cases)


def test_all_listed_tests_are_there():
    assert len(chosen) > 200 and listed() <= there
    # A name that two kinds share would be left out of both.
    assert not {name for _, name in chosen} & set(left_out)


def test_a_model_is_run_by_position_and_by_name():
    node = helper.make_node("Sub", ["a", "b"], ["c"])
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "abc"]
    model = helper.make_model(helper.make_graph([node], "graph", values[:2], values[2:]), ir_version=10)
    a, b = np.array([3, 4], np.float32), np.array([1, 1], np.float32)
    by_place = anabranch.backend.run_model(model, [a, b])
    by_name = anabranch.backend.prepare(model).run({"b": b, "a": a})
    assert by_place.c.tolist() == by_name[0].tolist() == [2, 3]
    assert anabranch.backend.supports_device("CPU") and not anabranch.backend.supports_device("CUDA")
    assert anabranch.backend.is_compatible(model)
    with pytest.raises(anabranch.AnabranchError):
        anabranch.backend.prepare(model).run([a])
    with pytest.raises(anabranch.errors.PlacementError, match="CUDA"):
        anabranch.backend.prepare(model, "CUDA")


def test_a_node_is_run():
    node = helper.make_node("MatMul", ["a", "b"], ["c"])
    a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    (c,) = anabranch.backend.run_node(node, [a, b])
    assert (c == 3).all() and c.shape == (2, 4)
