"""Plans, profiles, comparisons, refinement, costs and devices: told as data and as pages."""

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from conftest import DATA, chain, reference, session

import anabranch as ab


def split(model, **options):
    """A session on two CPU devices of one machine, or on one where there is a single core."""
    return session(model, cpu_devices="core", **options)


def test_devices_are_listed():
    found = ab.devices(gpu=False)
    assert found[0]["name"] == "cpu0" and found[0]["kind"] == "cpu" and found[0]["memory"] > 0
    assert found.host["cores"] >= 1 and found.details["cpu0"]["threads"] >= 1
    assert "<td>cpu0</td>" in found._repr_html_()
    limited = ab.devices(gpu=False, memory={"cpu0": "1MiB"})
    assert limited[0]["memory"] == 1 << 20
    assert [device["name"] for device in session(DATA / "mlp.onnx").devices] == [device["name"] for device in found]


@pytest.mark.parametrize("only", ["cpu0", ["cpu0"], ("cpu0",), {"cpu0": 1}.keys(), np.array(["cpu0"])])
def test_devices_are_one_name_or_several(only):
    listed, own = ab.devices(devices=only, gpu=False), session(DATA / "mlp.onnx", devices=only)
    assert [device["name"] for device in listed] == [device["name"] for device in own.devices] == ["cpu0"]


def test_a_plan_is_told_in_every_form(tmp_path):
    own = split(DATA / "convnet.onnx")
    inputs, _ = reference("convnet")
    plan = own.plan(inputs)
    rows = plan.rows()
    assert rows and {row["device"] for row in rows} <= {device["name"] for device in own.devices}
    assert all(row["end_ms"] >= row["start_ms"] >= 0 and row["reason"] for row in rows)
    assert max(row["end_ms"] for row in rows) <= plan.predicted_ms * 1.001
    assert sum(device["nodes"] for device in plan.facts["devices"]) == len(rows)
    assert plan.dict()["version"] == 1 and plan.dot().startswith("digraph")
    assert plan.html().startswith("<!doctype html>") and "srcdoc" in plan._repr_html_()
    file = tmp_path / "plan.json"
    plan.save(file)
    again = split(DATA / "convnet.onnx", place=file).plan(inputs)
    where = lambda plan: {node["node"]: node["device"] for node in plan.dict()["nodes"]}
    assert where(again) == where(plan)


def test_a_plan_needs_no_inputs_where_the_model_says_their_shapes(mlp):
    assert mlp.plan().facts["whole"] is True
    with pytest.raises(ab.errors.InputError, match="batch"):
        session(DATA / "mlp.onnx").plan()


def test_a_gpu_is_a_device_like_others():
    own = ab.Session(DATA / "convnet.onnx", software_gpu=True, place="gpu")
    inputs, expected = reference("convnet")
    devices = {row["device"] for row in own.plan(inputs).rows()}
    assert devices and all(name.startswith("gpu") for name in devices)
    assert "gpu0" in ab.devices(software_gpu=True).details
    for name, array in own.run(inputs).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-4)
    assert any(row["kind"] == "transfer" and row["bytes"] > 0 for row in own.profile(inputs, repeat=1).rows())


def test_a_platform_file_is_planned_for(tmp_path):
    model = chain(4, 64)
    here = session(model)
    platform = here.platform()
    for device in platform["devices"]:
        device["times"] = 1000
    file = tmp_path / "slow.json"
    file.write_text(json.dumps(platform))
    slow = session(model, platform=file)
    assert slow.plan().predicted_ms > 100 * here.plan().predicted_ms


def test_a_profile_tells_what_happened_when(tmp_path):
    own = session(DATA / "convnet.onnx")
    steps = []
    profile = own.profile(repeat=3, progress=steps.append)
    rows = profile.rows()
    nodes = [row for row in rows if row["kind"] == "node"]
    assert {row["name"] for row in nodes} == {row["node"] for row in own.plan().rows()}
    assert all(row["end_ms"] >= row["start_ms"] >= row["ready_ms"] >= 0 for row in rows)
    assert len(profile.report["samples_ms"]) == 3 and profile.measured_ms > 0
    assert steps == sorted(steps) and steps[-1] >= 4
    ElementTree.fromstring(profile.svg())
    assert "measured" in profile.html() and profile._repr_html_().startswith("<svg")
    trace = tmp_path / "trace.json"
    profile.save_trace(trace)
    assert len(json.loads(trace.read_text())["traceEvents"]) > len(nodes)


def test_progress_that_raises_ends_the_work(mlp):
    def stop(_):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        mlp.profile(repeat=100000, progress=stop)
    assert mlp.profile(repeat=1).measured_ms > 0


def test_configurations_are_compared(mlp):
    comparison = mlp.compare(places=["cpu", "heft"], repeat=3, warmup=1)
    rows = comparison.rows()
    assert [row["place"] for row in rows] == ["cpu", "heft", "dynamic"]
    assert all(row["measured_ms"] > 0 and row["within"] for row in rows)
    assert comparison.best in {"cpu", "heft", "dynamic"} and comparison.failed == {}
    assert "<svg" in comparison.html()
    with pytest.raises(ab.AnabranchError):
        mlp.compare(places=["nothing"], repeat=1)


def test_refining_learns_and_keeps_the_fastest_plan(tmp_path):
    costs = tmp_path / "costs.json"
    own = split(DATA / "convnet.onnx", place="auto", costs=costs)
    inputs, expected = reference("convnet")
    before = own.run(inputs)
    refinement = own.refine(inputs, rounds=2, repeat=3)
    rows = refinement.rows()
    assert {row["round"] for row in rows} == {1, 2}
    kept = [row for row in rows if row["role"] == "kept so far"]
    assert kept[0]["verdict"] in {"unchanged", "kept", "rejected", "single"} and kept[1]["node_error_percent"] is not None
    assert "measured" in refinement.plan.rows()[0]["cost"]
    after = own.run(inputs)
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(after[name], expected[name], rtol=1e-4, atol=1e-4)
    where = lambda plan: [(row["node"], row["device"]) for row in plan.rows()]
    assert where(own.plan(inputs)) == where(refinement.plan)
    own.save_costs()
    learned = split(DATA / "convnet.onnx", costs=costs).plan(inputs)
    assert "measured" in learned.rows()[0]["cost"]
    with pytest.raises(ab.errors.InputError, match="cost store"):
        session(DATA / "mlp.onnx").save_costs()


def test_rows_are_tables():
    rows = ab.Rows([{"a": 1, "b": None}, {"a": "<x>", "b": [1.5, 2]}])
    assert "<td>&lt;x&gt;</td><td>1.5, 2</td>" in rows._repr_html_()


def test_a_profile_keeps_no_plan_ready():
    (name, x), = reference("mlp")[0].items()
    own, other = (session(DATA / "mlp.onnx", cpu_devices="machine", plan_capacity=1) for _ in range(2))
    profile = own.profile({name: x}, repeat=1)
    for each in (own, other):
        each.run({name: x[:1]})
    assert own.held_bytes == other.held_bytes
    assert profile.rows() and profile.svg()
