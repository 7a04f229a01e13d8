"""Promises of `anabranch.cluster.Pipeline` about stages that run at the same time for one input."""

import os
import random
import signal
import threading
import time

import numpy as np
import pytest
from conftest import ONE_CPU, built, equal, with_memory

import anabranch as ab

ray = pytest.importorskip("ray", reason="ray is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import anabranch.cluster as cluster  # noqa: E402
from anabranch.cluster._routes import Arrived, Routes, message  # noqa: E402

ROWS = 4
LATENCY = {"goal": "latency", "measure": False, **ONE_CPU}


def wide(seed, branches=3):
    """A stem, branches of different widths and lengths, and joins of some of them. Branches also read the inputs, and some results are made
    in the stem and in branches."""
    randomly, numbers = random.Random(seed), np.random.default_rng(seed)
    nodes, weights, outputs = [], [], []

    def product(value, width_in, width):
        name = f"v{len(nodes)}"
        weights.append(numpy_helper.from_array(numbers.standard_normal((width_in, width), dtype=np.float32) / width_in**0.5, f"w_{name}"))
        nodes.append(helper.make_node("MatMul", [value, f"w_{name}"], [name], name=f"product_{name}"))
        return name

    def tanh(value):
        nodes.append(helper.make_node("Tanh", [value], [f"v{len(nodes)}"], name=f"tanh_v{len(nodes)}"))
        return nodes[-1].output[0]

    stem = tanh(product("x", 32, 48))
    ends = []
    for _ in range(branches):
        value, width = randomly.choice([(stem, 48), ("x", 32), ("z", 16)])
        for _ in range(randomly.randint(2, 4)):
            following = randomly.choice([64, 96, 160])
            value, width = tanh(product(value, width, following)), following
        ends.append((value, width))
    # A skip from the stem and from an input into the join.
    nodes.append(helper.make_node("Concat", [*(end for end, _ in ends), stem, "z"], ["joined"], name="join", axis=1))
    last = product("joined", sum(width for _, width in ends) + 48 + 16, 24)
    outputs = [(last, 24), (stem, 48), ends[0]]
    return built(
        nodes,
        [(name, TensorProto.FLOAT, [ROWS, width]) for name, width in (("x", 32), ("z", 16))],
        [(name, TensorProto.FLOAT, [ROWS, width]) for name, width in outputs],
        weights,
        opset=17,
    )


def samples(count, seed=0):
    numbers = np.random.default_rng(seed)
    return [{name: numbers.standard_normal((ROWS, width), dtype=np.float32) for name, width in (("x", 32), ("z", 16))} for _ in range(count)]


@pytest.fixture(scope="module")
def free(platform):
    """The nodes with links that seem to cost nothing, so that small branches are divided."""
    return cluster.Platform(platform.nodes, {ends: (0.0, 1e15) for ends in platform.links})


def devices_of(pipeline):
    return [stage["devices"][0] for stage in pipeline.plan["stages"]]


@pytest.mark.parametrize("seed", range(6))
def test_wide_models_have_the_bits_of_a_session(free, seed):
    model, given = wide(seed, branches=2 + seed % 3), samples(15)
    with cluster.Pipeline(model, free, **LATENCY) as pipeline:
        plan = pipeline.plan
        assert not plan["chain"] and len(set(devices_of(pipeline))) > 1
        assert plan["latency"] >= plan["lower_bound"] * (1 - 1e-9) > 0
        assert sum(len(stage["nodes"]) for stage in plan["stages"]) == len({node for stage in plan["stages"] for node in stage["nodes"]})
        assert equal(pipeline.map(given), given, model)
        assert len(pipeline.measured["stages"]) == len(plan["stages"])
        assert all(seconds > 0 for stage in pipeline.measured["stages"] for seconds in stage.values())
        for inputs in given[:3]:
            assert equal(pipeline.map([inputs]), [inputs], model)


def test_a_device_may_have_several_stages_in_one_process(free):
    model, given = wide(0), samples(5)
    with cluster.Pipeline(model, free, **LATENCY) as pipeline:
        devices = devices_of(pipeline)
        assert len(devices) > len(set(devices)) == len(pipeline._line.replicas())
        assert equal(pipeline.map(given), given, model)


def test_branches_are_left_out_if_they_cannot_help(free, platform):
    model, given = wide(1), samples(4)
    for options in ({**LATENCY, "branches": False}, {**LATENCY, "goal": "period"}):
        with cluster.Pipeline(model, free, **options) as pipeline:
            assert pipeline.plan["chain"] and equal(pipeline.map(given), given, model)
    one = cluster.Platform(free.nodes[:1], free.links)
    with cluster.Pipeline(model, one, **LATENCY) as pipeline:
        assert len(pipeline.plan["stages"]) == 1 and equal(pipeline.map(given), given, model)
    slow = cluster.Platform(platform.nodes, {ends: (1.0, 1e6) for ends in platform.links})
    with cluster.Pipeline(model, slow, **LATENCY) as pipeline:
        assert len(pipeline.plan["stages"]) == 1, "messages would cost more than they save"
    with pytest.raises(ab.errors.InputError, match="`branches`"):
        cluster.Pipeline(model, free, **{**LATENCY, "branches": 1})


def test_memory_limits_hold_for_all_stages_of_a_device(free):
    model, given = wide(2), samples(4)
    with cluster.Pipeline(model, free, **LATENCY) as pipeline:
        whole = sum(stage["weights"] for stage in pipeline.plan["stages"])
    with cluster.Pipeline(model, with_memory(free, int(whole * 0.7)), **LATENCY) as pipeline:
        held = {}
        for stage in pipeline.plan["stages"]:
            for device in stage["devices"]:
                held[device] = held.get(device, 0) + stage["weights"]
        assert len(held) > 1 and max(held.values()) <= whole * 0.7
        assert equal(pipeline.map(given), given, model)


def test_inputs_are_read_only_while_there_is_capacity_and_all_are_dropped(free):
    model, given = wide(3), samples(40)
    with cluster.Pipeline(model, free, **LATENCY) as pipeline:
        read = 0

        def counted():
            nonlocal read
            for inputs in given:
                read += 1
                yield inputs

        for taken, _ in enumerate(pipeline.map(counted()), 1):
            assert read - taken <= pipeline._most
        assert not pipeline._line._results
        results = pipeline.map(given)
        next(results)
        results.close()
        assert equal(pipeline.map(given[:3]), given[:3], model)


def test_a_wrong_input_ends_its_map_alone(free):
    model, given = wide(4), samples(5)
    with cluster.Pipeline(model, free, **LATENCY) as pipeline:
        for name in ("x", "z"):
            wrong = {**given[0], name: np.zeros((ROWS, 3), np.float32)}
            with pytest.raises(ab.errors.InputError, match=f"stage . on node./cpu0.*{name}"):
                list(pipeline.map([*given[:2], wrong, *given[2:]]))
            missing = {other: array for other, array in given[0].items() if other != name}
            with pytest.raises(ab.errors.InputError, match=f"stage . on node./cpu0.*{name}"):
                list(pipeline.map([given[0], missing]))
            assert equal(pipeline.map(given), given, model)


def test_results_that_are_inputs_and_inputs_that_nothing_reads(free):
    weight = numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    nodes = [helper.make_node("Identity", ["x"], ["same"])]
    for branch in "ab":
        nodes.append(helper.make_node("MatMul", ["x", "w"], [f"{branch}0"], name=f"{branch}0"))
        nodes.append(helper.make_node("Tanh", [f"{branch}0"], [branch], name=branch))
        nodes.append(helper.make_node("MatMul", [branch, "w"], [f"{branch}1"], name=f"{branch}1"))
    shape = [4, 8]
    ends = [[(name, TensorProto.FLOAT, shape) for name in names] for names in (("x", "unread"), ("same", "a1", "b1"))]
    model = built(nodes, *ends, [weight], opset=17)
    given = [{name: np.full(shape, value, np.float32) for name in ("x", "unread")} for value in range(3)]
    with cluster.Pipeline(model, free, **LATENCY) as pipeline:
        assert equal(pipeline.map(given), given, model)
        with pytest.raises(ab.errors.InputError, match="unread"):
            list(pipeline.map([{**given[0], "unread": np.zeros(3, np.float32)}]))


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_process_that_fails_loses_and_doubles_nothing(free, how):
    model, given = wide(5), samples(40)
    with cluster.Pipeline(model, free, hang=5.0, **LATENCY) as pipeline:
        replica = pipeline._line.replicas()[-1]
        process = ray.get(replica.actor.ping.options(concurrency_group="health").remote())
        timer = threading.Timer(0.1, lambda: os.kill(process, signal.SIGKILL if how == "killed" else signal.SIGSTOP))
        timer.start()
        try:
            assert equal((time.sleep(0.02) or outputs for outputs in pipeline.map(given)), given, model)
        finally:
            timer.join()
        # If all results were there before, the failure is noticed here.
        assert equal(pipeline.map(given), given, model)
        assert "computed again" in pipeline.events[0]


def test_a_report_has_the_messages(free, tmp_path):
    with cluster.Pipeline(wide(0), free, **LATENCY) as pipeline:
        list(pipeline.map(samples(10)))
        pipeline.report(tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        assert f"the last {10 * len(pipeline.plan['stages'])} runs" in page and "input 9: " in page
        assert all(entry["from"] in page and entry["to"] in page for entry in pipeline.plan["messages"])


def test_routes_carry_each_value_once_to_each_device():
    """A stem and a join on one device, and a branch on another, which a result leaves, too."""
    division = {"chain": False, "stages": [{"devices": [device]} for device in ("a", "b", "a")]}
    outputs = [{"name": "y", "slot": "3"}, {"name": "z", "slot": "2"}, {"name": "c"}]
    common = {"inputs": [["x", "0"], ["unread", "9"]], "outputs": outputs, "drops": []}
    own = [(["0"], ["1"]), (["1", "0"], ["2"]), (["1", "2", "0"], ["3"])]
    routes = Routes.of(division, [{**common, "reads": reads, "makes": makes} for reads, makes in own])
    assert routes.peers == [["a"], ["b"]] and routes.sends == [(0, ["0", "9"]), (1, ["0"])]
    assert [sorted(stage.needs) for stage in routes.stages] == [["0", "9"], ["0", "1"], ["0", "1", "2"]]
    assert [stage.sends for stage in routes.stages] == [[(1, ["1"])], [(0, ["2"]), (2, ["2"])], [(2, ["3"])]]
    assert routes.stages[0].stays == ["1"] and sorted(routes.results) == ["2", "3"]


def test_the_error_of_the_first_stage_counts():
    arrived, about = Arrived(), {"number": 7, "sequence": 0, "first": True, "keep": False}
    arrived.add(*message(about, ["1"], {}, {"stage": 2, "text": "later"}))
    assert not arrived.has(["1", "2"])
    arrived.add(*message(about, ["2"], {}, {"stage": 1, "text": "first"}))
    arrived.add(*message(about, ["3"], {"3": np.ones(2)}))
    assert arrived.has(["1", "2", "3"]) and arrived.error(["1", "2", "3"])["text"] == "first" and arrived.error(["3"]) is None
