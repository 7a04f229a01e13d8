"""Pipelines: the same results in the same order."""

import itertools
import json
import os
import signal
import threading

import numpy as np
import pytest
from conftest import DATA, built, chain, reference, session
from onnx import TensorProto, helper

import anabranch as ab
from anabranch import _arrays, _native


@pytest.mark.parametrize("stages", ["all", "together", "replicated", "pipelined"])
def test_a_stream_gives_what_runs_give_in_order(stages):
    own = session(DATA / "mlp.onnx", cpu_devices="core")
    (name, x), = reference("mlp")[0].items()
    frames = [x * np.float32(at) for at in range(30)]
    with own.pipeline({name: x}, stages=stages, measure=False) as pipeline:
        found = list(pipeline.map({name: frame} for frame in frames))
        assert pipeline.plan["period"] > 0 and pipeline.measured["data_sets"] == 30
    for frame, outputs in zip(frames, found, strict=True):
        for key, array in own.run({name: frame}).items():
            np.testing.assert_allclose(outputs[key], array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stages", ["all", "pipelined"])
def test_a_stream_that_is_longer_than_what_fits_ends(stages):
    own = session(DATA / "mlp.onnx", cpu_devices="core")
    (name, x), = reference("mlp")[0].items()
    with own.pipeline({name: x}, stages=stages, measure=False) as pipeline:
        # Small samples that are handed on together: one thread pushes them and takes results.
        assert sum(1 for _ in pipeline.map({name: x} for _ in range(1000))) == 1000


def test_a_pipeline_says_what_is_wrong_and_ends():
    own = session(DATA / "mlp.onnx")
    (name, x), = reference("mlp")[0].items()
    with pytest.raises(ab.errors.InputError, match="goal"):
        own.pipeline({name: x}, goal="fame")
    pipeline = own.pipeline({name: x}, measure=False)
    with pytest.raises(ab.AnabranchError):
        list(pipeline.map([{name: x[..., :1]}]))
    with pytest.raises(ab.errors.InputError, match="has no input `other`") as unknown:
        list(pipeline.map([{name: x, "other": x}]))
    assert (unknown.value.kind, unknown.value.input) == ("Input", "other")
    assert len(list(pipeline.map([{name: x}]))) == 1
    pipeline.close()
    with pytest.raises(ab.AnabranchError):
        list(pipeline.map([{name: x}]))


def test_what_a_map_leaves_is_not_the_next_ones():
    own = session(DATA / "mlp.onnx", cpu_devices="core")
    (name, x), = reference("mlp")[0].items()
    frames = [{name: x * np.float32(at)} for at in range(12)]
    (output,) = [value.name for value in own.outputs]
    expected = [own.run(frame)[output] for frame in frames]
    with own.pipeline({name: x}, stages="together", measure=False) as pipeline:

        def check():
            for outputs, array in zip(pipeline.map(frames), expected, strict=True):
                np.testing.assert_allclose(outputs[output], array, rtol=1e-5, atol=1e-6)

        # A `map` that is left in the middle, repeatedly, so that it would fill the pipeline.
        for _ in range(20):
            for _ in pipeline.map(reversed(frames)):
                break
        check()
        # A `map` with inputs that are rejected.
        with pytest.raises(ab.errors.InputError):
            list(pipeline.map([frames[3], frames[4], {name: x[..., :1]}]))
        check()
        # Two at a time.
        first = pipeline.map(frames)
        next(first)
        with pytest.raises(ab.errors.InputError, match="another"):
            next(pipeline.map(frames))
        np.testing.assert_allclose(next(first)[output], expected[1], rtol=1e-5, atol=1e-6)
        first.close()
        check()


def gathering():
    """A session of `y = table[at]`, which fails within a kernel for indices outside of the table."""
    table = helper.make_tensor("table", TensorProto.FLOAT, [4], [0.0, 1.0, 2.0, 3.0])
    nodes = [helper.make_node("Gather", ["table", "at"], ["row"]), helper.make_node("Neg", ["row"], ["y"])]
    inputs, outputs = [("at", TensorProto.INT64, [2])], [("y", TensorProto.FLOAT, [2])]
    return session(built(nodes, inputs, outputs, [table]), cpu_devices="machine")


def broken():
    """A source of samples that fails before its first."""
    raise OSError("the camera is gone")
    yield


@pytest.mark.parametrize("stages", ["all", "together", "replicated", "pipelined"])
@pytest.mark.parametrize("good", [0, 1, 3, 20])
def test_results_before_a_sample_that_fails_come_first(stages, good):
    own = gathering()
    sets = [{"at": np.array([number % 4, 3], np.int64)} for number in range(good)]
    outside, wrong = {"at": np.array([4, 0], np.int64)}, {"at": np.zeros(3, np.int64)}
    unknown, listed = {"at": np.zeros(2, np.int64), "other": 1}, {"at": [[0.5], []]}
    for last, error, text in [
        (iter([outside]), ab.errors.DeviceError, f"sample {good}, stage .*4"),
        (iter([outside, wrong, unknown]), ab.errors.DeviceError, f"sample {good}, stage .*4"),
        (iter([outside] * 100), ab.errors.DeviceError, f"sample {good}, stage .*4"),
        (iter([wrong, outside]), ab.errors.InputError, f"sample {good}: input `at`"),
        (iter([unknown]), ab.errors.InputError, f"sample {good}: .*`other`"),
        (iter([None]), ab.errors.InputError, f"sample {good}: .*NoneType"),
        (iter([listed]), ab.errors.InputError, f"sample {good}: input `at`"),
        (broken(), OSError, "camera"),
    ]:
        with own.pipeline({"at": np.zeros(2, np.int64)}, stages=stages, measure=False) as pipeline:
            # Numbers are those of the last `map`.
            assert len(list(pipeline.map(sets))) == good
            found = []
            with pytest.raises(error, match=text):
                for outputs in pipeline.map(itertools.chain(sets, last)):
                    found.append(outputs["y"].tolist())
            assert found == [[-(number % 4), -3] for number in range(good)]
            if error is not ab.errors.DeviceError:
                assert len(list(pipeline.map(sets))) == good
                continue
            with pytest.raises(ab.errors.InputError, match=f"ended when an earlier `map` failed: sample {good}, stage .*open another"):
                next(pipeline.map([{"at": np.zeros(2, np.int64)}]))


def test_a_state_stays_in_its_stage_and_begins_anew_with_each_map(tmp_path):
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    names = [value(name, onnx.TensorProto.FLOAT, [2]) for name in ("x", "sum_in", "y", "sum_out")]
    nodes = [onnx.helper.make_node("Add", ["sum_in", "x"], ["sum_out"]), onnx.helper.make_node("Neg", ["sum_out"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "sums", names[:2], names[2:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "sums.onnx")
    own = session(tmp_path / "sums.onnx", cpu_devices="core")
    begin = {"x": np.zeros(2, np.float32), "sum_in": np.full(2, 10, np.float32)}
    with own.pipeline(begin, measure=False, feed={"*_out": "*_in"}, sequences=2) as pipeline:
        begin["sum_in"][:] = 99
        for count in (5, 4):
            found = list(pipeline.map({"x": np.full(2, at, np.float32)} for at in range(count)))
            assert [outputs["y"].tolist() for outputs in found] == [[-at] * 2 for at in (10, 11, 12, 14, 16)[:count]]
            assert all(set(outputs) == {"y"} for outputs in found)
    with pytest.raises(ab.errors.InputError, match="sequences"):
        own.pipeline(begin, feed={"*_out": "*_in"}, sequences=0)
    with pytest.raises(ab.AnabranchError, match="no output `z`"):
        own.pipeline(begin, feed={"z": "sum_in"})
    with pytest.raises(ab.errors.InputError, match="feed"):
        own.pipeline(begin, feed=["sum_out=sum_in"])
    with pytest.raises(ab.errors.InputError, match="sequences"):
        own.pipeline(begin, feed={"*_out": "*_in"}, sequences=-1)


def test_a_stage_copies_a_state_that_is_a_value_of_another_stage():
    values = {name: (name, TensorProto.FLOAT, [4096]) for name in ("x", "before", "y", "next")}
    nodes = [helper.make_node("Sub", ["x", "before"], ["y"]), helper.make_node("Identity", ["x"], ["next"])]
    own = session(built(nodes, [values["x"], values["before"]], [values["y"], values["next"]]))
    names = json.loads(own._session.times([], False, ([], 1)))["nodes"]
    stage = own._session.stage([], [names], 0, "cpu0", ([("next", "before")], 1))
    [(_, slot)] = json.loads(stage.data())["inputs"]
    x = np.ones(4096, np.float32)
    stage.run(_arrays.given({slot: x}, {}), _native.CancelToken(), (0, True))
    # The array is the caller's again.
    x[:] = 7
    [(_, dtype, shape, memory)] = stage.states()
    assert (_arrays.array(dtype, shape, memory) == 1).all()


def test_an_interrupt_ends_a_map_that_waits(interruptible):
    own = session(chain(40, 1024), threads=1)
    x = np.ones((1024, 1024), np.float32)
    with own.pipeline({"x": x}, stages="together", measure=False) as pipeline:
        # Far more samples than end before the signal comes.
        results = pipeline.map({"x": x} for _ in range(10_000))
        threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            list(results)
        with pytest.raises(ab.errors.Cancelled):
            next(pipeline.map([{"x": x}]))


def test_an_exception_of_a_handler_may_come_at_any_step_of_a_map():
    class Alarm(Exception):
        pass

    def raise_it(*_):
        raise Alarm

    own = session(DATA / "mlp.onnx", threads=1)
    inputs, wanted = reference("mlp")
    before = signal.signal(signal.SIGALRM, raise_it)
    useful = 0
    try:
        for at in range(40):
            with own.pipeline(inputs, stages="together", measure=False) as pipeline:
                signal.setitimer(signal.ITIMER_REAL, 0.002 + at * 2e-4)
                with pytest.raises(Alarm):
                    for _ in pipeline.map(itertools.repeat(inputs)):
                        pass
                try:
                    found = list(pipeline.map([inputs] * 3))
                except (ab.errors.Cancelled, ab.errors.InputError):
                    # It came while the map waited, which ends the pipeline.
                    continue
                useful += 1
                assert len(found) == 3
                for outputs in found:
                    for name, value in wanted.items():
                        np.testing.assert_allclose(outputs[name], value, rtol=1e-4, atol=1e-5)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert useful > 0


def test_a_map_takes_and_reads_several_samples_at_a_time():
    own = session(DATA / "mlp.onnx", cpu_devices="core")
    (name, x), = reference("mlp")[0].items()
    with own.pipeline({name: x}, stages="together", measure=False) as pipeline:
        most, read = pipeline._pipeline.max_in_flight(), 0

        def samples():
            nonlocal read
            for read in range(1, 10 * most + 1):
                yield {name: x}

        in_flight = [read - at for at, _ in enumerate(pipeline.map(samples()))]
        steady = in_flight[most : 9 * most]
        assert max(in_flight) == max(steady) == most and min(steady) == most // 2 + 1
