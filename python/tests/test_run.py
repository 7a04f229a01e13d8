"""Runs: right results, without copies, from threads, and what interrupts them."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from conftest import DATA, built, chain, reference, session, unary
from onnx import TensorProto, helper

import anabranch as ab


@pytest.mark.parametrize("path", sorted(DATA.glob("*.onnx")), ids=lambda path: path.stem)
def test_models_agree_with_their_references(path):
    inputs, expected = reference(path.stem)
    found = session(path).run(inputs)
    assert list(found) == [value.name for value in session(path).outputs]
    for name, array in expected.items():
        assert found[name].shape == array.shape and found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4 * np.abs(array).max(initial=0) + 1e-5)


def test_models_are_opened_from_paths_and_bytes_and_messages():
    import onnx

    inputs, _ = reference("mlp")
    path = DATA / "mlp.onnx"
    results = [session(model).run(inputs) for model in (path, str(path), path.read_bytes(), onnx.load(path))]
    for name, array in results[0].items():
        assert all(np.array_equal(other[name], array) for other in results)


def test_the_model_says_what_its_inputs_and_outputs_are(mlp):
    (x,) = mlp.inputs
    assert (x.dtype, x.optional) == ("float32", False)
    assert x.shape is not None and "batch" in x.shape
    assert [value.dtype for value in mlp.outputs] == ["float32"]


def sequences():
    """The bytes of a model that puts x behind the arrays of s, and passes on o, an optional."""
    array = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    declared = {"x": array, "s": helper.make_sequence_type_proto(array), "o": helper.make_optional_type_proto(array)}
    inputs = [helper.make_value_info(name, of) for name, of in declared.items()]
    outputs = [helper.make_value_info(name, declared[of]) for name, of in [("y", "s"), ("p", "o")]]
    nodes = [helper.make_node("SequenceInsert", ["s", "x"], ["y"]), helper.make_node("Identity", ["o"], ["p"])]
    model = helper.make_model(helper.make_graph(nodes, "graph", inputs, outputs), opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    return model.SerializeToString()


def test_a_sequence_is_a_list_and_an_optional_may_be_none():
    model = session(sequences())
    assert [value.kind for value in (*model.inputs, *model.outputs)] == ["tensor", "sequence", "optional", "sequence", "optional"]
    x = np.array([1, 2], np.float32)
    found = model.run({"x": x, "s": [[3.0], x], "o": None})
    assert list(found) == ["y", "p"] and found["p"] is None
    assert [array.tolist() for array in found["y"]] == [[3], [1, 2], [1, 2]]
    found = model.run({"x": x, "s": [], "o": x})
    assert len(found["y"]) == 1 and found["p"].tolist() == [1, 2]
    assert not any(np.shares_memory(x, array) for array in (*found["y"], found["p"]))
    for wrong in ({"s": x, "o": x}, {"s": [x.astype(int)], "o": x}, {"s": None, "o": x}, {"s": [], "o": [[1.0]]}, {"s": []}):
        with pytest.raises(ab.errors.InputError):
            model.run({"x": x, **wrong})
    with pytest.raises(ab.errors.InputError, match="is None"):
        model.run({"x": None, "s": [], "o": None})


TYPES = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


@pytest.mark.parametrize("name", [*TYPES, "bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 700)])
def test_all_element_types_and_shapes_pass(name, shape):
    dtype = np.dtype(name) if name in TYPES else np.dtype(getattr(ml_dtypes, name))
    model = unary("Identity", list(shape), helper.np_dtype_to_tensor_dtype(dtype))
    x = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
    y = session(model).run({"x": x})["y"]
    assert (y.dtype, y.shape) == (dtype, shape)
    assert y.tobytes() == x.tobytes() and y.flags.writeable and not np.shares_memory(x, y)


def test_arrays_of_any_layout_give_the_same():
    own = session(unary("Relu", [60, 40]))
    x = np.random.default_rng(1).standard_normal((60, 40)).astype(np.float32)
    odd = np.frombuffer(bytearray(1) + bytearray(x.tobytes()), np.float32, offset=1).reshape(60, 40)
    assert not odd.flags.aligned
    wide = np.zeros((120, 80), np.float32)
    wide[::2, ::2] = x
    for given in (x, np.asfortranarray(x), wide[::2, ::2], x.astype(">f4"), odd, x.tolist()):
        assert np.array_equal(own.run({"x": given})["y"], np.maximum(x, 0))
    single = session(unary("Relu", [])).run({"x": np.array(2, ">f4")})["y"]
    assert single.shape == () and single == 2


def test_large_arrays_are_not_copied_on_their_way_in_or_out():
    # A process with memory for the input, the output and little else runs. A copy of either would not fit.
    program = """
import resource, numpy as np, anabranch as ab, sys
from conftest import session, unary
size = 48 << 20
own = session(unary("Relu", [size]), threads=1)
x = np.ones(size, np.float32)
own.run({"x": x})
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 4 * size + (160 << 20),) * 2)
y = own.run({"x": x})["y"]
assert y[0] == 1 and y[-1] == 1
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=os.path.dirname(__file__), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_outputs_outlive_the_session_and_belong_to_their_owner():
    x = np.arange(4096, dtype=np.float32)
    own = session(unary("Relu", [4096]))
    first, second = own.run({"x": x})["y"], own.run({"x": x})["y"]
    first[:] = -1
    assert np.array_equal(second, x) and np.array_equal(own.run({"x": x})["y"], x)
    del own
    gc.collect()
    assert np.array_equal(second, x)


def test_outputs_that_are_inputs_or_constants_or_one_another_have_memory_of_their_own():
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2000], np.ones(2000, np.float32))
    shape = ("x", TensorProto.FLOAT, [2000])
    nodes = [helper.make_node("Identity", [name], [f"{name}{at}"]) for at in (1, 2) for name in ("x", "w")]
    outputs = [(f"{name}{at}", TensorProto.FLOAT, [2000]) for at in (1, 2) for name in ("x", "w")]
    own = session(built(nodes, [shape], outputs, [weight]))
    x = np.full(2000, 3, np.float32)
    found = own.run({"x": x})
    for name, array in found.items():
        assert (array == (3 if name[0] == "x" else 1)).all()
        array[:] = 7
        assert sum((other == 7).all() for other in found.values()) == 1
        array[:] = 3 if name[0] == "x" else 1
    found["w1"][:] = 9
    assert (x == 3).all() and (own.run({"x": x})["w1"] == 1).all()


def test_whatever_offers_dlpack_is_taken_and_outputs_offer_it():
    class Tensor:
        """As torch's on the CPU: no array, but DLPack."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **arguments):
            return self.array.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = np.linspace(-1, 1, 5000, dtype=np.float32)
    y = session(unary("Relu", [5000])).run({"x": Tensor(x)})["y"]
    assert np.array_equal(y, np.maximum(x, 0))
    again = np.from_dlpack(Tensor(y))
    assert np.shares_memory(again, y)


def test_shapes_may_differ_from_run_to_run():
    own = session(DATA / "mlp.onnx")
    inputs, expected = reference("mlp")
    (name, x), (_, y) = *inputs.items(), *expected.items()
    for rows in (1, 2, 1):
        np.testing.assert_allclose(own.run({name: x[:rows]})[own.outputs[0].name], y[:rows], rtol=1e-4, atol=1e-5)


def test_other_threads_go_on_during_a_run():
    own, x = session(chain(20, 256)), np.ones((256, 256), np.float32)
    own.run({"x": x})
    counted, ended = [0], threading.Event()

    def count():
        while not ended.is_set():
            counted[0] += 1
            time.sleep(0)

    other = threading.Thread(target=count)
    other.start()
    # From a thread, because the main thread checks for signals and lets others continue anyway.
    with ThreadPoolExecutor(1) as pool:
        before = counted[0]
        pool.submit(own.run, {"x": x}).result()
        during = counted[0] - before
    ended.set()
    other.join()
    assert during > 10


def test_many_threads_get_their_own_results():
    own = session(unary("Neg", [3000]))

    def check(at):
        x = np.full(3000, at, np.float32)
        return (own.run({"x": x})["y"] == -at).all()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(check, range(200)))


# Long enough to be interrupted on any machine.
LONG = (300, 1024)


def test_an_interrupt_stops_a_run_of_the_main_thread(interruptible):
    own, x = session(chain(*LONG)), np.ones((1024, 1024), np.float32)
    begun = threading.Event()

    def interrupt():
        begun.wait()
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        begun.set()
        while True:
            own.run({"x": x})
    thread.join()
    # The session works as before.
    assert session(unary("Relu", [1])).run({"x": [1.0]})["y"] == 1
    with pytest.raises(ab.errors.Timeout):
        own.run({"x": x}, timeout=0.0)


def test_runs_can_be_awaited_and_cancelled():
    own, x = session(chain(*LONG)), np.ones((1024, 1024), np.float32)
    quick = session(unary("Relu", [3]))

    async def main():
        task = asyncio.create_task(own.run_async({"x": x}))
        results = await asyncio.gather(*(quick.run_async({"x": [float(at)] * 3}) for at in range(20)))
        assert [float(result["y"][0]) for result in results] == list(range(20))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ab.errors.Timeout):
            await own.run_async({"x": x}, timeout=0.01)

    asyncio.run(main())


def test_a_run_that_is_cancelled_twice_is_waited_for():
    own, x = session(chain(1, 8)), np.ones((8, 8), np.float32)
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(*_):
        begun.set()
        may_end.wait()
        ended.set()

    own._run = slow

    async def main():
        task = asyncio.create_task(own.run_async({"x": x}))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(main())
