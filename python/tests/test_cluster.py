"""Promises of `anabranch.cluster`, on three Ray nodes of this machine, at addresses of the loopback network."""

import asyncio
import gc
import os
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import ONE_CPU, WIDTH, equal, samples, with_memory

import anabranch as ab

ray = pytest.importorskip("ray", reason="ray is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")

import anabranch.cluster as cluster  # noqa: E402


@pytest.fixture(scope="module")
def divided(platform, model):
    """A pipeline over three nodes, each of which has memory for a part of the model only. Tests share it."""
    yield from over_three_nodes(platform, model)


@pytest.fixture
def alone(platform, model):
    """Such a pipeline for one test, which counts what it does, or ends its processes."""
    yield from over_three_nodes(platform, model)


def over_three_nodes(platform, model):
    with cluster.Pipeline(
        model, with_memory(platform, 3 * WIDTH * WIDTH * 4), measure=False, replicate=False, hang=5.0, **ONE_CPU
    ) as pipeline:
        assert len(pipeline.plan["stages"]) >= 2
        yield pipeline


def test_a_platform_names_nodes_devices_and_links(platform, tmp_path):
    assert [node.name for node in platform.nodes] == ["node1", "node2", "node3"]
    assert {row["device"] for row in platform.rows()} == {"node1/cpu0", "node2/cpu0", "node3/cpu0"}
    ends = {(source, target) for source in ("node1", "node2", "node3") for target in ("node1", "node2", "node3", "outside")}
    assert ends <= set(platform.links)
    assert all(0 < latency < 1 and rate > 1e5 for latency, rate in platform.links.values())
    platform.save(tmp_path / "platform.json")
    assert cluster.Platform.load(tmp_path / "platform.json").dict() == platform.dict()


def test_a_model_larger_than_each_node_has_the_results_of_one_process(divided, model):
    weights = [stage["weights"] for stage in divided.plan["stages"]]
    assert len({device for stage in divided.plan["stages"] for device in stage["devices"]}) == len(weights) >= 2
    assert max(weights) <= 3 * WIDTH * WIDTH * 4 < sum(weights)
    given = samples(30)
    assert equal(divided.map(given), given, model)
    assert divided.measured["results"] == 30 and divided.measured["period"] > 0
    assert all(seconds > 0 for stage in divided.measured["stages"] for seconds in stage.values())


def test_replicas_keep_the_order(platform, model):
    free = cluster.Platform(platform.nodes, {ends: (0.0, 1e15) for ends in platform.links})
    with cluster.Pipeline(model, free, measure=False, **ONE_CPU) as pipeline:
        assert sum(len(stage["devices"]) for stage in pipeline.plan["stages"]) == 3
        given = samples(31)
        assert equal(pipeline.map(given), given, model)


def test_asynchronous_results_are_equal(divided, model):
    given = samples(7)

    async def collected():
        return [outputs async for outputs in divided.map_async(given)]

    assert equal(asyncio.run(collected()), given, model)


def test_inputs_may_be_asynchronous(divided, model):
    given = samples(9)

    async def arriving():
        for sample in given:
            await asyncio.sleep(0.001)
            yield sample

    async def collected():
        return [outputs async for outputs in divided.map_async(arriving())]

    assert equal(asyncio.run(collected()), given, model)

    async def never():
        yield given[0]
        await asyncio.Event().wait()

    async def cancelled():
        results = divided.map_async(never())
        assert equal([await anext(results)], given[:1], model)
        task = asyncio.create_task(anext(results))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(cancelled(), 20))
    assert equal(divided.map(given), given, model)


def test_results_are_given_out_while_an_asynchronous_source_waits(divided, model):
    given = samples(20)

    async def followed():
        results, taken = [], asyncio.Semaphore(2)

        async def source():
            for sample in given:
                # For the result before the last one.
                await taken.acquire()
                yield sample

        async for outputs in divided.map_async(source()):
            results.append(outputs)
            taken.release()
        return results

    assert divided._most > 2
    assert equal(asyncio.run(asyncio.wait_for(followed(), 60)), given, model)


def test_results_that_are_there_come_before_the_next_input_is_read(divided, model):
    given, taken, read_after = samples(4), [], []

    def source():
        for sample in given:
            read_after.append(len(taken))
            yield sample
            arrived_by = time.monotonic() + 30
            while not divided._line._has_result() and time.monotonic() < arrived_by:
                time.sleep(0.01)

    for outputs in divided.map(source()):
        taken.append(outputs)
    assert divided._most > 4 and equal(taken, given, model)
    assert read_after == [0, 0, 1, 2]


def test_a_report_has_stages_links_and_lanes(alone, tmp_path):
    from anabranch.cluster import report

    counted = []
    report._metrics.cache_clear()
    for name, metric in report._metrics().items():
        method = "inc" if name in ("items", "restarts") else "set"
        kept = getattr(metric, method)
        setattr(metric, method, lambda value, tags, name=name, kept=kept: counted.append((name, value, tags)) or kept(value, tags))
    list(alone.map(samples(25)))
    assert sum(value for name, value, _ in counted if name == "items") == 25
    assert all(value > 0 and tags == {"model": "chain.onnx"} for _, value, tags in counted)
    alone.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for stage in alone.plan["stages"]:
        assert page.count(stage["devices"][0]) >= 4, "in tables and as a lane"
    # Each stage has run each input, and the driver has sent each of its 25 × 4 × 64 numbers.
    assert f"the last {25 * len(alone.plan['stages'])} runs" in page and "25 KiB" in page
    with pytest.raises(ab.errors.InputError, match="`path` is int"):
        alone.report(5)


def test_an_early_end_leaves_nothing_behind(divided, model):
    results = divided.map(samples(20, seed=1))
    next(results)
    with pytest.raises(ab.errors.InputError, match="another `map`"):
        next(divided.map(samples(1)))
    results.close()
    given = samples(5, seed=2)
    assert equal(divided.map(given), given, model)


def test_inputs_are_read_only_while_there_is_capacity(divided):
    read = 0

    def given():
        nonlocal read
        for sample in samples(60):
            read += 1
            yield sample

    for taken, _ in enumerate(divided.map(given()), 1):
        assert read - taken <= divided._most


def test_a_wrong_input_ends_its_map_alone(divided, model):
    def broken():
        yield from samples(2)
        raise OSError("the camera is gone")

    wrong, unknown = {"x": np.zeros((4, 3), np.float32)}, {**samples(1)[0], "zz": np.zeros(1)}
    for source, error, text in [
        ([*samples(2), wrong, *samples(2)], ab.errors.InputError, "sample 2: stage 0 on node./cpu0.*x"),
        ([*samples(2), unknown, *samples(2)], ab.errors.InputError, "sample 2: .*no input `zz`"),
        (broken(), OSError, "camera"),
    ]:
        found = []
        with pytest.raises(error, match=text):
            for outputs in divided.map(source):
                found.append(outputs)
        assert equal(found, samples(2), model), "results of the samples before come first"
    given = samples(4)
    assert equal(divided.map(given), given, model)


@pytest.mark.parametrize("wrong", [{"zz": np.zeros(1)}, None, "text", {"x": np.zeros(1, object)}])
def test_results_before_an_input_that_is_refused_are_given_out(divided, model, wrong):
    given, results = samples(3), []
    with pytest.raises(ab.errors.InputError):
        for outputs in divided.map([*given, wrong, *given]):
            results.append(outputs)
    assert equal(results, given, model)


def test_all_results_are_counted(divided):
    assert sum(1 for _ in divided.map(samples(1) * 1100)) == 1100
    measured = divided.measured
    assert measured["results"] == 1100 and len(divided._latencies) == 1024
    assert 0 < measured["period"] < measured["latency"]["p95"] * 1100


def test_weights_in_other_files_are_divided_but_not_shipped(platform, model, tmp_path):
    path = tmp_path / "outside.onnx"
    onnx.save(onnx.load(model), path, save_as_external_data=True, location="outside.bin", size_threshold=0)
    with cluster.Pipeline(path, platform, measure=False, **ONE_CPU) as pipeline:
        given = samples(3)
        assert equal(pipeline.map(given), given, model)
    with pytest.raises(ab.errors.AnabranchError, match="sends only the model's own file.*`w0`"):
        cluster.Pipeline(path, platform, measure=False, ship=True, **ONE_CPU)


def test_unknown_inputs_are_refused_and_constants_belong_to_the_caller(divided, model):
    with pytest.raises(ab.errors.InputError, match="no input `zz`"):
        list(divided.map([{**samples(1)[0], "zz": np.zeros(1)}]))
    first, second = divided.map(samples(2))
    first["fixed"][:] = 7
    assert second["fixed"].tolist() == [0, 1, 2] and next(divided.map(samples(1)))["fixed"].tolist() == [0, 1, 2]


def test_an_interruption_ends_the_stages_and_the_next_results_are_right(alone, model, monkeypatch):
    def interrupted(self, *given):
        time.sleep(0.2)
        raise KeyboardInterrupt

    before = threading.active_count()
    for _ in range(3):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(type(alone._line or alone._running()), "take", interrupted)
            list(alone.map(samples(5, seed=3)))
        given = samples(5, seed=4)
        assert equal(alone.map(given), given, model)
    time.sleep(1.0)
    assert threading.active_count() <= before + 2


def test_stages_that_cannot_be_opened_at_once_are_opened_again(alone, model, monkeypatch):
    opened, failures = cluster.pipeline.Line, iter([ab.errors.DeviceError("node1/cpu0: it has died")])

    def line(*given):
        for failure in failures:
            raise failure
        return opened(*given)

    alone._stop()
    monkeypatch.setattr(cluster.pipeline, "Line", line)
    given = samples(5)
    assert equal(alone.map(given), given, model)
    assert "node1/cpu0: it has died" in alone.events[-1]


def test_a_closed_pipeline_stays_closed(platform, model):
    pipeline = cluster.Pipeline(model, platform, measure=False, **ONE_CPU)
    results = pipeline.map(samples(50))
    next(results)
    pipeline.close()
    with pytest.raises(ab.errors.InputError, match="closed"):
        for _ in results:
            pass
    assert pipeline._line is None
    with pytest.raises(ab.errors.InputError, match="closed"):
        pipeline.rebalance()
    with pytest.raises(ab.errors.InputError, match="closed"), pipeline:
        pass


def process_of(replica):
    return ray.get(replica.actor.ping.options(concurrency_group="health").remote())


def lives(process):
    """Whether a process has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "XZ"
    except OSError:
        return False


def test_ray_prints_nothing_about_stages_that_were_closed_early(platform, model, monkeypatch):
    class Deaf(cluster.line.Inbox):
        """Refuses the stages, as if the pipeline had been closed before they connect."""

        @property
        def address(self):
            address = super().address
            self.close()
            return address

    printed = []
    monkeypatch.setattr("ray._private.worker._unhandled_error_handler", printed.append)
    monkeypatch.setattr(cluster.line, "Inbox", Deaf)
    pipeline = cluster.Pipeline(model, platform, measure=False, **ONE_CPU)
    # Looking at the errors would be asking for them.
    time.sleep(1.5)
    pipeline.close()
    del pipeline
    gc.collect()
    time.sleep(1.5)
    assert not printed


def test_a_pipeline_that_is_dropped_ends_its_processes(platform, model):
    pipeline = cluster.Pipeline(model, platform, measure=False, **ONE_CPU)
    given = samples(3)
    assert equal(pipeline.map(given), given, model)
    processes = [process_of(replica) for replica in pipeline._line.replicas()]
    assert processes and all(map(lives, processes))
    del pipeline
    gc.collect()
    deadline = time.monotonic() + 30
    while any(map(lives, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(lives, processes))


def test_a_cancelled_task_leaves_the_pipeline_usable(divided, model):
    async def cancelled():
        async def read():
            async for _ in divided.map_async(samples(500)):
                await asyncio.sleep(0.01)

        task = asyncio.create_task(read())
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    given = samples(3)
    assert equal(divided.map(given), given, model)


def test_two_pipelines_work_side_by_side(divided, platform, model):
    with cluster.Pipeline(model, platform, measure=False, **ONE_CPU) as other:
        ours, theirs = samples(20, seed=5), samples(20, seed=6)
        pairs = list(zip(divided.map(ours), other.map(theirs), strict=True))
    assert equal([pair[0] for pair in pairs], ours, model) and equal([pair[1] for pair in pairs], theirs, model)


def test_a_stranger_keeps_nobody_from_connecting(platform):
    import socket

    from anabranch.cluster._channel import Inbox, Wire

    got, key = [], b"k" * 32
    inbox = Inbox("127.0.0.1", key, lambda wire, head, packet: got.append((head, packet)), got.append)
    with socket.create_connection(inbox.address):
        wire = Wire.to(inbox.address, key)
        sent = {"a": np.arange(6.0).reshape(2, 3).T, "none": np.empty((0, 2), np.int8), "one": np.array(True)}
        wire.send({"number": 3}, sent)
        while not got:
            time.sleep(0.01)
        with pytest.raises(Exception, match="digest|rejected"):
            Wire.to(inbox.address, b"x" * 32)
    head, packet = got[0]
    assert head["number"] == 3 and list(packet) == list(sent)
    assert all(packet[name].shape == array.shape and packet[name].tobytes() == array.tobytes() for name, array in sent.items())
    wire.close()
    # Another thread may still be about to read from it: its number must not be given to another file yet.
    assert wire._socket.fileno() >= 0 and wire._connection.fileno() >= 0
    with pytest.raises((OSError, EOFError)):
        wire.receive()
    inbox.close()


def test_another_file_of_the_same_name_is_refused(platform, model, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(model.read_bytes())
    with cluster.Pipeline(path, platform, measure=False, **ONE_CPU) as pipeline:
        given = samples(4)
        assert equal(pipeline.map(given), given, model)
        changed = onnx.load(path)
        changed.graph.initializer[0].raw_data = bytes(len(changed.graph.initializer[0].raw_data))
        onnx.save(changed, path)
        end_a_process(pipeline)
        with pytest.raises(ab.errors.InputError, match="differs"):
            list(pipeline.map(given))


def test_other_weights_beside_the_model_are_refused_after_a_failure(platform, model, tmp_path):
    path, weights = tmp_path / "outside.onnx", tmp_path / "outside.bin"
    onnx.save(onnx.load(model), path, save_as_external_data=True, location=weights.name, size_threshold=0)
    with cluster.Pipeline(path, with_memory(platform, 3 * WIDTH * WIDTH * 4), measure=False, replicate=False, **ONE_CPU) as pipeline:
        given = samples(4)
        assert equal(pipeline.map(given), given, model)
        doubled = np.fromfile(weights, np.float32) * 2
        # The files that are open stay as they are.
        weights.rename(tmp_path / "old.bin")
        doubled.tofile(weights)
        end_a_process(pipeline)
        with pytest.raises(ab.errors.InputError, match="outside.onnx: the weights differ"):
            list(pipeline.map(given))


def end_a_process(pipeline):
    os.kill(process_of(pipeline._line.replicas()[0]), signal.SIGKILL)
    while pipeline._line._why() is None:
        time.sleep(0.05)


def test_a_killed_process_loses_and_doubles_nothing(alone, model):
    given, randomly = samples(60), random.Random(0)
    stop = threading.Event()

    def kill():
        while not stop.wait(randomly.uniform(0.0, 2.0)):
            line = alone._line
            replicas = line.replicas() if line is not None else []
            if replicas:
                ray.kill(randomly.choice(replicas).actor)
                return

    for _ in range(3):
        stop.clear()
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            assert equal((time.sleep(0.02) or outputs for outputs in alone.map(given)), given, model)
        finally:
            stop.set()
            killer.join()
    assert alone.events and "computed again" in alone.events[0]


def test_a_process_that_hangs_is_replaced(alone, model):
    replica = alone._line.replicas()[-1]
    os.kill(process_of(replica), signal.SIGSTOP)
    given = samples(10)
    assert equal(alone.map(given), given, model)
    assert "does not answer" in alone.events[0]


def test_a_file_that_a_node_lacks_is_named(platform, tmp_path, model):
    data = model.read_bytes()
    path = tmp_path / "gone.onnx"
    path.write_bytes(data)
    pipeline = cluster.Pipeline(path, platform, measure=False, ship=True, **ONE_CPU)
    path.unlink()
    given = samples(3)
    assert equal(pipeline.map(given), given, model)
    pipeline.close()
    with pytest.raises(ab.errors.InputError, match="closed"):
        next(pipeline.map(given))


def test_a_node_that_dies_is_replaced_and_one_that_joins_is_used(nodes, model):
    """Last: it changes the cluster."""
    made, added = nodes
    platform = cluster.Platform.measure(**ONE_CPU)
    small = with_memory(platform, 5 * WIDTH * WIDTH * 4)
    with cluster.Pipeline(model, small, measure=False, replicate=False, hang=5.0, **ONE_CPU) as pipeline:
        used = {device.partition("/")[0] for stage in pipeline.plan["stages"] for device in stage["devices"]}
        victim = next(node for node in platform.nodes if node.name in used and node.name != "node1")
        address = next(node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == victim.id)
        raylet = next(node for node in added if node.node_ip_address == address)
        given, deadline = samples(40), time.monotonic() + 60
        timer = threading.Timer(0.3, lambda: made.remove_node(raylet, allow_graceful=False))
        timer.start()

        def stream():
            """Goes on until the failure was noticed."""
            yield from given
            while not pipeline.events and time.monotonic() < deadline:
                given.append(given[len(given) % 40])
                yield given[-1]

        try:
            results = [time.sleep(0.01) or outputs for outputs in pipeline.map(stream())]
            assert equal(results, given, model)
        finally:
            timer.join()
        assert len(pipeline._alive) == 2
        made.add_node(node_ip_address="127.0.0.5", num_cpus=1, object_store_memory=80 << 20)
        pipeline.rebalance()
        assert len(pipeline._alive) == 3, pipeline.events
        memory = {device["memory"] for node in pipeline.platform.nodes if node.id != victim.id for device in node.devices}
        assert 5 * WIDTH * WIDTH * 4 in memory, "edits are kept"
        assert equal(pipeline.map(given[:5]), given[:5], model)
        # Ray may still list a node that has just died.
        joined = next(node for node in made.worker_nodes if node.node_ip_address == "127.0.0.5")
        made.remove_node(joined, allow_graceful=False)
        left = cluster.Platform.measure(**ONE_CPU)
        assert len(left.nodes) == 2 and all("left out" in event for event in left.events)
    with cluster.Pipeline(model, pipeline.platform, measure=False, **ONE_CPU) as again:
        assert len(again._alive) == 2
        assert equal(again.map(given[:5]), given[:5], model)
