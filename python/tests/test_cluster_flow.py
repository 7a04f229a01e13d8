"""Promises of flows and graphs of commands on the nodes of a Ray cluster. The nodes are those that `test_cluster` leaves."""

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import anabranch as ab

ray = pytest.importorskip("ray", reason="ray is not installed")

import anabranch.cluster as cluster  # noqa: E402

GRAPHS = Path(__file__).resolve().parents[2] / "examples" / "graphs"


@pytest.fixture(scope="module")
def workers(nodes):
    platform = cluster.Platform.measure(gpu=False, threads=1)
    with cluster.Workers(platform, workers=4, hang=2.0) as made:
        assert len(made.nodes) >= 2 and len(made) == 4
        yield made


def mixed(count=60):
    """A flow with every kind of node, and what it computes."""
    flow, total = ab.Flow(), [0]

    def added(number):
        total[0] += number
        return total[0]

    frames = flow.source("frames", range(count))
    scale = flow.feeder("scale", np.arange(3000.0))
    scaled = flow.node("scaled", lambda frame, scale: frame * scale, frames, scale)
    sums = flow.node("sums", lambda array, again: float(array.sum() + again[1]), scaled, scaled)
    odd = flow.filter("odd", lambda number, frame: number if frame % 2 else None, sums, frames)
    running = flow.serializer("running", added, odd)
    nothing = flow.node("nothing", lambda number: None, running)
    pair = flow.node("pair", lambda running, odd, nothing: (running, odd, nothing), running, odd, nothing)
    return flow, flow.collect("kept", pair)


@pytest.mark.parametrize("scheduler", ["central", "central-stealing", "local", "stealing"])
def test_results_are_those_of_a_local_run(workers, scheduler):
    flow, kept = mixed()
    report = flow.run(cluster=workers, scheduler=scheduler, profile=True)
    wanted, expected = mixed()
    wanted.run(workers=2)
    assert kept == expected and len(kept) == 30
    assert report.facts["cluster"]["nodes"] == workers.nodes and len(report.facts["workers"]) == 4
    assert {row["name"]: row["operands"] for row in report.rows()}["scaled"] == 60 and report.svg().startswith("<svg")


def test_placements_decide_what_passes_between_nodes(workers):
    flow, kept = mixed()
    together = {name: 0 for name in flow.place("heft", cluster=workers)}
    sent = flow.run(cluster=workers, scheduler="local", allocation=together).facts["cluster"]
    assert sent["messages"] == sent["bytes"] == 0 and sent["outside_messages"] > 0
    far = next(number for number, link in enumerate(workers._links) if link.node != workers._links[0].node)
    sent = flow.run(cluster=workers, scheduler="local", allocation={**together, "sums": far}).facts["cluster"]
    # The products go to `sums`, each once, and the sums come back.
    assert sent["messages"] == 60 + 60 and 60 * 24000 < sent["bytes"] < 60 * 26000
    assert [pair[1] for pair in kept[:30]] == [pair[1] for pair in kept[30:]]
    with pytest.raises(ab.errors.InputError, match="`workers` and `machines`"):
        flow.run(cluster=workers, workers=2)


def test_what_a_function_raises_names_node_and_process(workers):
    flow = ab.Flow()
    flow.collect("kept", flow.node("inverse", lambda number: 1 / (number - 3), flow.source("numbers", range(8))))
    with pytest.raises(ZeroDivisionError) as raised:
        flow.run(cluster=workers)
    notes = "\n".join(raised.value.__notes__)
    assert 'node "inverse"' in notes and "iteration 3" in notes and "worker" in notes and "on node" in notes


def test_what_cannot_be_sent_is_refused_with_its_node(workers):
    lock = threading.Lock()
    flow = ab.Flow()
    flow.node("locked", lambda number: lock and number, flow.source("numbers", range(2)))
    with pytest.raises(ab.errors.InputError, match="'locked': its function cannot be sent"):
        flow.run(cluster=workers)
    flow = ab.Flow()
    flow.node("reads", lambda given: 0, flow.feeder("lock", lock))
    with pytest.raises(ab.errors.InputError, match="'reads': an operand cannot be sent"):
        flow.run(cluster=workers)
    flow = ab.Flow()
    flow.collect("kept", flow.node("makes", lambda number: threading.Lock(), flow.feeder("one", 1)))
    with pytest.raises(TypeError, match="pickle"):
        flow.run(cluster=workers)


def test_values_are_released(workers):
    class Counted:
        alive = 0

        def __init__(self):
            Counted.alive += 1

        def __del__(self):
            Counted.alive -= 1

    flow = ab.Flow()
    made = flow.node("made", lambda number: Counted(), flow.source("numbers", range(200)))
    alive = flow.collect("kept", flow.node("alive", lambda counted: type(counted).alive, made))
    flow.run(cluster=workers, scheduler="local", allocation={"numbers": 0, "made": 0, "alive": 0, "kept": 0}, window=4)
    assert len(alive) == 200 and max(alive) <= 6


@pytest.mark.parametrize("signalled, text", [(signal.SIGKILL, "is gone"), (signal.SIGSTOP, "does not answer for 2 s")])
def test_a_process_that_ends_or_hangs_is_named_and_replaced(workers, signalled, text):
    flow, kept = mixed(400)
    slow = flow.node("slow", lambda number: time.sleep(0.01) or number, flow.source("again", range(400)))
    flow.collect("slow kept", slow)
    process = ray.get(workers._links[1].actor.process.remote())
    timer = threading.Timer(0.3, lambda: os.kill(process, signalled))
    timer.start()
    with pytest.raises(ab.errors.DeviceError, match=text) as raised:
        flow.run(cluster=workers)
    timer.join()
    assert "worker 1 on node" in str(raised.value) and "of the flow, iteration" in raised.value.__notes__[0]
    if signalled == signal.SIGSTOP:
        os.kill(process, signal.SIGCONT)
    flow, kept = mixed()
    flow.run(cluster=workers)
    assert len(kept) == 30 and len(workers) == 4


def test_a_process_that_hangs_with_an_operand_ends_the_run(workers):
    def stopped(number, first):
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()
        return number

    flow, far = ab.Flow(), len(workers) - 1
    made = flow.node("made", lambda number: number, flow.source("numbers", range(1)), pin=far)
    # Reads from the process before it stops, so that there is a connection.
    first = flow.node("first", lambda number: number, made, pin=0)
    second = flow.node("second", stopped, made, first, pin=far)
    late = flow.node("late", lambda number: time.sleep(1.5) or number, first, pin=0)
    flow.collect("kept", flow.node("sum", lambda second, late: second + late, second, late, pin=0))
    process = ray.get(workers._links[far].actor.process.remote())
    timer = threading.Timer(20, lambda: os.kill(process, signal.SIGCONT))
    timer.start()
    try:
        with pytest.raises(ab.errors.DeviceError, match=f"worker {far} on .* does not answer for 2 s"):
            flow.run(cluster=workers)
    finally:
        timer.cancel()
        os.kill(process, signal.SIGCONT)


def test_one_run_uses_the_workers_at_a_time_and_closed_ones_stay_closed(workers):
    flow, inner = ab.Flow(), []

    def run(number):
        with pytest.raises(ab.errors.InputError, match="another run"):
            mixed()[0].run(cluster=workers)
        inner.append(number)

    flow.serializer("run", run, flow.source("numbers", range(2)))
    flow.run(cluster=workers)
    assert inner == [0, 1]
    with cluster.Workers(workers.platform, workers=1) as other:
        assert other.nodes == workers.nodes[:1]
    with pytest.raises(ab.errors.InputError, match="closed"):
        mixed()[0].run(cluster=other)
    with pytest.raises(ab.errors.InputError, match="`workers` = 0"):
        cluster.Workers(workers.platform, workers=0)


def graph_of(command, path):
    """A graph of one application with this command, in a file."""
    application = {"key": 1, "name": "say", "category": "BashShellApp", "categoryType": "Application"}
    nodes = [
        {**application, "fields": [{"name": "command", "value": command}]},
        {"key": 2, "name": "said", "category": "File", "categoryType": "Data", "fields": [{"name": "filepath", "value": "said.txt"}]},
    ]
    path.write_text(json.dumps({"nodeDataArray": nodes, "linkDataArray": [{"from": 1, "to": 2}]}))
    return path


def test_a_graph_of_commands_runs_on_the_nodes_and_keeps_what_it_has(workers, tmp_path):
    (tmp_path / "text.txt").write_text("one fish two fish\nred fish blue fish\n")
    graph = shutil.copy(GRAPHS / "wordcount.graph", tmp_path)
    outcome = cluster.run_graph(graph, workers, directory=tmp_path, place="heft")
    assert outcome["ran"] > 4 and outcome["kept"] == 0 and not outcome["failures"]
    assert "fish" in (tmp_path / "words.txt").read_text()
    again = cluster.run_graph(graph, workers, directory=tmp_path)
    assert again["ran"] == 0 and again["kept"] == outcome["ran"]


def test_a_command_that_fails_names_its_drop_and_process(workers, tmp_path):
    graph = graph_of("echo never; exit 3", tmp_path / "fails.graph")
    [failure] = cluster.run_graph(graph, workers, directory=tmp_path)["failures"]
    assert failure["drop"].startswith("say") and "on worker" in failure["why"] and "exit status: 3" in failure["why"]
    with pytest.raises(ab.errors.InputError, match="nowhere.graph"):
        cluster.run_graph(tmp_path / "nowhere.graph", workers, directory=tmp_path)
    with pytest.raises(ab.errors.InputError, match="nowhere: there is no such directory"):
        cluster.run_graph(graph, workers, directory=tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_an_interruption_ends_the_commands_on_the_nodes(workers, tmp_path, interruptible):
    graph = graph_of("echo $$ > started; exec sleep 100", tmp_path / "long.graph")

    def interrupt():
        while not (tmp_path / "started").exists() or not (tmp_path / "started").read_text().strip():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Thread(target=interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        cluster.run_graph(graph, workers, directory=tmp_path)
    timer.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "started").read_text()), 0)


def test_a_process_that_dies_fails_its_application_and_a_further_run_makes_it(workers, tmp_path):
    command = "if mkdir once; then kill -9 $PPID; sleep 1; else echo late > %o0; fi"
    graph = graph_of(command, tmp_path / "dies.graph")
    [failure] = cluster.run_graph(graph, workers, directory=tmp_path)["failures"]
    assert failure["drop"].startswith("say") and "is gone" in failure["why"]
    assert cluster.run_graph(graph, workers, directory=tmp_path)["ran"] == 1
    assert (tmp_path / "said.txt").read_text() == "late\n"
