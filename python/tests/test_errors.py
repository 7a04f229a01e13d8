"""What goes wrong is an exception of the tree, with the library's text."""

from decimal import Decimal

import numpy as np
import pytest
from conftest import DATA, built, chain, session, unary
from onnx import TensorProto, helper

import anabranch as ab
from anabranch import errors


def raised(kind, call):
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, ab.AnabranchError)
    return caught.value


def test_models_that_cannot_be_used():
    missing = raised(errors.ModelError, lambda: session("nowhere.onnx"))
    assert missing.kind == "Model" and "nowhere.onnx" in str(missing) and missing.file == "nowhere.onnx"
    raised(errors.ModelError, lambda: session(b"no model"))
    node = helper.make_node("NoSuchOperator", ["x"], ["y"], name="odd")
    model = built([node], [("x", TensorProto.FLOAT, [1])], [("y", TensorProto.FLOAT, [1])])
    unsupported = raised(errors.UnsupportedError, lambda: session(model).run({"x": np.zeros(1, np.float32)}))
    assert "NoSuchOperator" in str(unsupported) and unsupported.node == "odd"


def test_inputs_that_do_not_fit(mlp):
    (name,) = [value.name for value in mlp.inputs]
    missing = raised(errors.InputError, lambda: mlp.run({}))
    assert (missing.kind, missing.input) == ("MissingInput", name)
    assert isinstance(missing, ValueError)
    shape = tuple(size if isinstance(size, int) else 2 for size in mlp.inputs[0].shape)
    x = np.zeros(shape, np.float32)
    assert "f64" in str(raised(errors.InputError, lambda: mlp.run({name: x.astype(np.float64)})))
    assert "its inputs are" in str(raised(errors.InputError, lambda: mlp.run({name: x, "other": x})))
    raised(errors.InputError, lambda: mlp.run({name: x[..., :1]}))
    assert "astype" in str(raised(errors.InputError, lambda: mlp.run({name: np.array(["text"])})))
    assert "complex128" in str(raised(errors.InputError, lambda: mlp.run({name: x.astype(complex)})))
    assert "dictionary" in str(raised(errors.InputError, lambda: mlp.run([x])))
    raised(errors.InputError, lambda: mlp.run({name: "text"}))
    masked = raised(errors.InputError, lambda: mlp.run({name: np.ma.masked_less(x, 1)}))
    assert name in str(masked) and "filled" in str(masked)


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ({"order": "lifo"}, "order"),
        ({"stream": "perhaps"}, "stream"),
        ({"weights": "gone"}, "staged"),
        ({"threads": 0}, "threads"),
        ({"threads": [2]}, "a number"),
        ({"emulate": {"cpu0": float("nan")}}, "emulate"),
        ({"memory": {"cpu0": "much"}}, "memory"),
        ({"cpu_devices": "half"}, "cpu_devices"),
        ({"on_device_loss": "weep"}, "replace"),
        ({"platform": "nowhere.json"}, "nowhere.json"),
        ({"costs": __file__}, "costs"),
    ],
)
def test_options_that_make_no_sense(option, part):
    assert part in str(raised(errors.InputError, lambda: session(DATA / "mlp.onnx", **option)))


FLOAT, INT, WIDE, BYTE, BOOL, HALF = (
    TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8, TensorProto.BOOL, TensorProto.BFLOAT16
)


@pytest.mark.parametrize(
    ("dtype", "numbers", "part"),
    [
        (FLOAT, [1, 2**24 + 1], "16777217 is no number of type float32"),
        (HALF, [257], "257 is no number of type bfloat16"),
        (FLOAT, [1e300], "1e\\+300"),
        (FLOAT, ["1.5"], "'1.5' is no number"),
        (FLOAT, [None], "None is no number"),
        (INT, [1.5], "1.5 is no number of type int32"),
        (WIDE, [2**62 + 0.5, 2.5], "2.5"),
        (BOOL, [2], "2 is no number of type bool"),
        (BYTE, [-1], "-1"),
        (BYTE, [256.0], "256"),
        (INT, [float("nan")], "NaN"),
        (FLOAT, [[1], [2, 3]], "inhomogeneous"),
    ],
)
def test_numbers_in_lists_keep_their_values_or_are_refused(dtype, numbers, part):
    own = session(unary("Identity", ["n"], dtype))
    with pytest.raises(ab.errors.InputError, match=f"input `x`: .*{part}"):
        own.run({"x": numbers})


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        (FLOAT, [0.1, 2**24, -3, float("nan"), float("inf")]),
        (FLOAT, [2**64]),
        (FLOAT, [Decimal("0.5"), 2**70]),
        (FLOAT, [2**24 + 2, -(2**25)]),
        (HALF, [0.1, 256]),
        (WIDE, [2**62 + 1, 3.0, True]),
        (BOOL, [True, 0, 1.0]),
        (BYTE, [0, 255.0]),
        (FLOAT, []),
    ],
)
def test_numbers_in_lists_become_the_declared_type(dtype, numbers):
    found = session(unary("Identity", ["n"], dtype)).run({"x": numbers})["y"]
    assert np.array_equal(found, np.array(numbers, found.dtype), equal_nan=found.dtype.kind == "f")


def test_arguments_of_other_types_are_refused_with_the_next_step(mlp):
    x = np.zeros((2, mlp.inputs[0].shape[1]), np.float32)
    for name in (None, 3, b"x"):
        with pytest.raises(ab.errors.InputError, match="names of inputs are strings: "):
            mlp.run({name: x})
    for timeout in ("1", True, [1]):
        with pytest.raises(ab.errors.InputError, match="`timeout` = .*: give a number of seconds"):
            mlp.run({mlp.inputs[0].name: x}, timeout=timeout)
    for timeout in (60, 60.0, np.float32(60), None):
        mlp.run({mlp.inputs[0].name: x}, timeout=timeout)


def test_threads_that_a_device_does_not_have_are_not_used_and_a_note_says_so():
    many = session(DATA / "mlp.onnx", cpu_devices="machine", threads=100_000)
    assert any("cpu0: 100000 threads are more than" in note for note in many.devices.notes)


def test_devices_and_constraints_that_are_not_there(mlp):
    error = raised(errors.PlacementError, lambda: session(DATA / "mlp.onnx", devices=["tpu7"]))
    assert error.device == "tpu7" and "cpu0" in str(error)
    x = {mlp.inputs[0].name: np.zeros([2, *mlp.inputs[0].shape[1:]], np.float32)}
    for options in ({"place": "nothing"}, {"pin": {"*": "gpu9"}}, {"place": "nowhere.json"}):
        raised(errors.PlacementError, lambda options=options: session(DATA / "mlp.onnx", **options).run(x))
    with pytest.raises(TypeError):
        session(DATA / "mlp.onnx", strategy="heft")


def test_what_does_not_fit_memory_is_refused_with_the_bytes():
    own = session(chain(3, 256), memory={"cpu0": "64KiB"}, cpu_devices="machine")
    error = raised(errors.MemoryLimitError, lambda: own.run({"x": np.zeros((256, 256), np.float32)}))
    assert isinstance(error, MemoryError) and error.device == "cpu0" and "65536" in str(error)


def test_a_failed_run_leaves_the_session_as_good_as_before():
    own = session(unary("Relu", ["n"]))
    for _ in range(3):
        raised(errors.InputError, lambda: own.run({"x": np.zeros((2, 2), np.float32)}))
        raised(errors.InputError, lambda: own.run({"x": [1.0]}, timeout=-1.0))
        assert own.run({"x": [-1.0, 2.0]})["y"].tolist() == [0.0, 2.0]
