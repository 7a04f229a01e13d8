"""What `anabranch.cluster` refuses, and what it leaves out of a platform. The nodes are those that `test_cluster` leaves."""

import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import ONE_CPU, WIDTH, equal, samples, with_memory

import anabranch as ab

ray = pytest.importorskip("ray", reason="ray is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import anabranch.cluster as cluster  # noqa: E402


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda data: data.update(format="other"), "anabranch-cluster"),
        (lambda data: data["nodes"][0].pop("name"), "name"),
        (lambda data: data["links"][0].update({"from": "node9"}), "node9"),
        (lambda data: data["links"][0].update(rate=0), "rate"),
        (lambda data: data["nodes"][0].update(name="outside"), "outside"),
        (lambda data: data["nodes"][0]["devices"][0].update(memory="8GB"), "memory in bytes"),
        (lambda data: data["links"][0].update(rate=float("inf")), "finite"),
        (lambda data: data.update(version=2), "version 2, but .* version 1"),
        (lambda data: data["nodes"][0].update(name="a/b"), "called 'a/b'"),
        (lambda data: data["nodes"][0].update(name=""), "called ''"),
        (lambda data: data["nodes"][0].update(id=[]), "id of node1"),
        (lambda data: data["nodes"][0].update(id=data["nodes"][1]["id"]), "two nodes have the id"),
        (lambda data: data["nodes"][0].update(devices=data["nodes"][0]["devices"] * 2), "two devices of node1"),
        (lambda data: data["links"].append(data["links"][0]), "given twice"),
    ],
)
def test_a_wrong_platform_is_refused(platform, change, text):
    data = platform.dict()
    change(data)
    with pytest.raises(ab.errors.InputError, match=text):
        cluster.Platform._of(data)


@pytest.mark.parametrize("costs", [(0.0, float("inf")), (0.0, float("nan")), (float("nan"), 1e9), (-1.0, 1e9)])
def test_a_wrong_link_is_refused_without_a_file(platform, costs):
    with pytest.raises(ab.errors.InputError, match="from node1 to node2 needs"):
        cluster.Platform(platform.nodes, {**platform.links, ("node1", "node2"): costs})


@pytest.mark.parametrize(
    "option, text",
    [({"goal": "speed"}, "goal"), ({"capacity": 1.5}, "capacity"), ({"hang": float("nan")}, "hang"), ({"place": "heft"}, "place"), ({"ship": 1}, "ship"), ({"capacity": True}, "`capacity` = True"), ({"sequences": 3}, "without `feed`")],
)
def test_options_without_a_meaning_are_refused_at_once(platform, model, option, text):
    with pytest.raises(ab.errors.InputError, match=text):
        cluster.Pipeline(model, platform, **ONE_CPU, **option)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda platform, model: cluster.Pipeline(5, platform, **ONE_CPU), "`model` is int"),
        (lambda platform, model: cluster.Pipeline(model, platform, inputs=5, **ONE_CPU), "`inputs` is int"),
        (lambda platform, model: cluster.Pipeline(model, platform, inputs={1: 5}, **ONE_CPU), "`inputs` has the name 1"),
        (lambda platform, model: cluster.Pipeline(model, platform, goals=5, **ONE_CPU), "no option `goals`"),
        (lambda platform, model: cluster.Pipeline(model, 5, **ONE_CPU), "`platform` is not a Platform"),
        (lambda platform, model: cluster.Platform.measure(timeout="long"), "`timeout` = 'long'"),
        (lambda platform, model: cluster.Platform.measure(progress=5), "`progress` = 5"),
        (lambda platform, model: cluster.Platform.measure(place="heft"), "no option `place`"),
        (lambda platform, model: cluster.Platform.load(None), "`path` is NoneType"),
        (lambda platform, model: platform.save(5.5), "`path` is float"),
        (lambda platform, model: cluster.Workers(platform, hang=None), "`hang` = None"),
        (lambda platform, model: cluster.run_graph("g.graph", platform), "`workers` is Platform"),
        (lambda platform, model: ab.Flow().run(cluster=platform), "`cluster` is Platform"),
    ],
)
def test_wrong_arguments_are_named(platform, model, call, text):
    with pytest.raises(ab.errors.InputError, match=text):
        call(platform, model)


def test_shapes_that_depend_on_elements_are_refused_with_the_input(platform, tmp_path):
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]), helper.make_tensor_value_info("y", TensorProto.INT64, [1, None])]
    graph = helper.make_graph([helper.make_node("NonZero", ["x"], ["y"])], "decides", ends[:1], ends[1:])
    path = tmp_path / "decides.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    with pytest.raises(ab.errors.PlacementError, match="depend on the elements of `x`.*run it in a session"):
        cluster.Pipeline(path, platform, inputs={"x": np.ones(4, np.float32)}, measure=False, **ONE_CPU)


def test_an_input_that_decides_which_nodes_run_is_given_at_the_opening(platform):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y", "t", "e")]
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    branches = [
        helper.make_graph([helper.make_node(operator, ["x"], [value.name])], operator, [], [value])
        for operator, value in zip(("Neg", "Abs"), ends[2:])
    ]
    chosen = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    graph = helper.make_graph([chosen], "chooses", [ends[0], condition], ends[1:2])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    given = {"x": np.array([1, -2], np.float32), "c": np.array(True)}
    with cluster.Pipeline(model, platform, measure=False, **ONE_CPU) as pipeline:
        with pytest.raises(ab.errors.InputError, match="`c` decides shapes or which nodes run; open the pipeline with `inputs=`") as raised:
            list(pipeline.map([given]))
        assert raised.value.input == "c"
    with cluster.Pipeline(model, platform, inputs=given, measure=False, **ONE_CPU) as pipeline:
        assert next(pipeline.map([given]))["y"].tolist() == [-1, 2]


def test_a_default_is_given_both_times_or_never(platform, tmp_path):
    weight = numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in ("x", "w", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "default", ends[:2], ends[2:], [weight])
    path = tmp_path / "default.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    given = {"x": np.ones((2, 2), np.float32), "w": np.full((2, 2), 3, np.float32)}
    with cluster.Pipeline(path, platform, inputs={"x": given["x"]}, measure=False, **ONE_CPU) as pipeline:
        assert next(pipeline.map([{"x": given["x"]}]))["y"].tolist() == [[1, 1], [1, 1]]
        with pytest.raises(ab.errors.InputError, match="`w` was not given when"):
            list(pipeline.map([given]))
    with cluster.Pipeline(path, platform, inputs=given, measure=False, **ONE_CPU) as pipeline:
        assert next(pipeline.map([given]))["y"].tolist() == [[6, 6], [6, 6]]
        with pytest.raises(ab.errors.InputError, match="`w` was given when"):
            list(pipeline.map([{"x": given["x"]}]))


def test_a_pipeline_needs_a_connection_before_anything_else(model):
    text = f"""
import anabranch.cluster as cluster, ray
node = cluster.platform.Node("node1", "id", "", ({{"name": "cpu0"}},))
try:
    cluster.Pipeline(open({str(model)!r}, "rb").read(), cluster.Platform([node], {{}}))
except Exception as error:
    print(type(error).__name__, error, ray.is_initialized())
"""
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env={**os.environ, "RAY_ADDRESS": ""}, timeout=120)
    assert run.stdout.startswith("InputError this process is not connected") and run.stdout.endswith("False\n"), run


def test_what_is_left_out_of_a_platform_is_an_event(platform, model):
    data = platform.dict()
    data["nodes"][1]["id"] = "0" * 56
    data["nodes"][0]["devices"].append({"name": "cpu7", "kind": "cpu", "memory": None})
    changed = cluster.Platform._of(data)
    with cluster.Pipeline(model, changed, measure=False, **ONE_CPU) as pipeline:
        absent, missing = pipeline.events
        assert absent.startswith("node2 is left out (") and "0" * 56 in absent
        assert missing.startswith("node1/cpu7 is left out (") and "its devices are cpu0" in missing
        given = samples(3)
        assert equal(pipeline.map(given), given, model)
        with pytest.raises(ab.errors.InputError, match="`progress` = 3"):
            pipeline.rebalance(3)
        pipeline.rebalance()
        assert pipeline.events == [absent, missing]
    with cluster.Workers(changed, workers=2) as workers:
        assert workers.events == [absent] and "node2" not in workers.nodes


def test_a_model_that_does_not_fit_without_a_lost_node_names_the_node(platform, model):
    data = with_memory(platform, 3 * WIDTH * WIDTH * 4).dict()
    for node in data["nodes"][1:]:
        node["id"] = None
    with pytest.raises(ab.errors.PlacementError, match=r"weights take.*node2.* start nodes, and measure the platform again"):
        cluster.Pipeline(model, cluster.Platform._of(data), measure=False, replicate=False, **ONE_CPU)


def test_a_model_that_fits_nowhere_is_refused(platform, model):
    with pytest.raises(ab.errors.PlacementError, match="weights take 96 KiB.*node2/cpu0 1,?000 B"):
        cluster.Pipeline(model, with_memory(platform, 1000), measure=False, **ONE_CPU)
