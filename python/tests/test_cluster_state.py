"""Models with state on three Ray nodes: each stage keeps its states, and lost ones are computed again."""

import os
import random
import signal

import numpy as np
import pytest
from conftest import LAYERS, ONE_CPU, WIDTH, built, samples, with_memory

import anabranch as ab

ray = pytest.importorskip("ray", reason="ray is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import anabranch.cluster as cluster  # noqa: E402

@pytest.fixture(scope="module")
def recurrent(tmp_path_factory):
    """A chain of products, each of what came before and of the layer's own last value."""
    random_numbers = np.random.default_rng(1)
    nodes, weights, states, value = [], [], [], "x"
    for layer in range(LAYERS):
        weight = random_numbers.standard_normal((WIDTH, WIDTH), dtype=np.float32) / WIDTH**0.5
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes += [helper.make_node("Add", [value, f"h{layer}_in"], [f"s{layer}"], name=f"sum{layer}")]
        nodes += [helper.make_node("MatMul", [f"s{layer}", f"w{layer}"], [f"p{layer}"], name=f"product{layer}")]
        nodes += [helper.make_node("Tanh", [f"p{layer}"], [f"h{layer}_out"], name=f"tanh{layer}")]
        states.append((f"h{layer}_in", f"h{layer}_out"))
        value = f"h{layer}_out"
    nodes.append(helper.make_node("Neg", [value], ["y"], name="last"))
    float_of = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, WIDTH])  # noqa: E731
    inputs, outputs = (["x", *(state[0] for state in states)], ["y", *(state[1] for state in states)])
    graph = helper.make_graph(nodes, "recurrent", list(map(float_of, inputs)), list(map(float_of, outputs)), weights)
    path = tmp_path_factory.mktemp("cluster") / "recurrent.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def stepped(model, given, sequences):
    """Results of a session that is given each state again."""
    session, results = ab.Session(model, **ONE_CPU), []
    states = [{f"h{layer}_in": np.zeros((4, WIDTH), np.float32) for layer in range(LAYERS)} for _ in range(sequences)]
    for at, inputs in enumerate(given):
        made = session.run({**inputs, **states[at % sequences]})
        states[at % sequences] = {f"h{layer}_in": made[f"h{layer}_out"] for layer in range(LAYERS)}
        results.append(made["y"])
    return results


@pytest.fixture
def stateful(platform, recurrent):
    options = {"measure": False, "replicate": True, "hang": 5.0, "feed": {"*_out": "*_in"}, "checkpoint": 8, **ONE_CPU}
    # Two of the nodes hold it, one alone does not.
    memory = 5 * WIDTH * WIDTH * 4
    with cluster.Pipeline(recurrent, with_memory(platform, memory), sequences=3, **options) as pipeline:
        assert len(pipeline.plan["stages"]) >= 2
        assert all(len(stage["devices"]) == 1 for stage in pipeline.plan["stages"])
        assert sum(stage["state"] for stage in pipeline.plan["stages"]) == 5 * LAYERS * 4 * WIDTH * 4
        yield pipeline


def test_stages_keep_states_of_several_sequences(stateful, recurrent):
    for seed, count in [(0, 20), (1, 7)]:
        given = samples(count, seed)
        results = list(stateful.map(given))
        assert all(set(outputs) == {"y"} for outputs in results)
        for outputs, wanted in zip(results, stepped(recurrent, given, 3), strict=True):
            assert outputs["y"].tobytes() == wanted.tobytes()
    # A `map` that ends early leaves no state to the next.
    results = stateful.map(samples(9))
    next(results)
    results.close()
    assert next(stateful.map(given))["y"].tobytes() == stepped(recurrent, given[:1], 3)[0].tobytes()
    with pytest.raises(ab.errors.InputError, match="`h0_in` is a state"):
        list(stateful.map([{"x": given[0]["x"], "h0_in": given[0]["x"]}]))


def test_states_that_a_process_has_lost_are_computed_again(stateful, recurrent):
    random_numbers, given, killed = random.Random(5), samples(60, 3), 0
    wanted = stepped(recurrent, given, 3)
    for at, outputs in enumerate(stateful.map(given)):
        assert outputs["y"].tobytes() == wanted[at].tobytes(), at
        if at in (1, 20, 37):
            replica = random_numbers.choice(stateful._line.replicas())
            os.kill(ray.get(replica.actor.ping.options(concurrency_group="health").remote()), signal.SIGKILL)
            killed += 1
    assert at == 59 and killed == 3 and len(stateful.events) >= killed


def test_a_state_that_no_node_reads_stays_on_one_device(platform):
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["s2"])]
    model = built(nodes, [(name, TensorProto.FLOAT, [2]) for name in ("x", "s")], [(name, TensorProto.FLOAT, [2]) for name in ("y", "s2", "s")])
    for sequences in (1, 2):
        with cluster.Pipeline(model, platform, measure=False, feed={"s2": "s"}, sequences=sequences, **ONE_CPU) as pipeline:
            given = [{"x": np.full(2, number, np.float32)} for number in range(1, 8)]
            found = [int(outputs["s"][0]) for outputs in pipeline.map(given)]
            assert found == [*[0] * sequences, *range(1, 8 - sequences)]
