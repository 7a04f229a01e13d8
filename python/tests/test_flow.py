"""Flows of Python functions: the same results under all schedulers, and errors that name the node."""

import hashlib
import signal
import threading
import time

import pytest

import anabranch as ab


def scaled():
    flow = ab.Flow()
    frames = flow.source("frames", range(1000))
    scale = flow.feeder("scale", 3)
    scaled = flow.node("scaled", lambda frame, scale: frame * scale, frames, scale)
    odd = flow.filter("odd", lambda number: number if number % 2 else None, scaled)
    return flow, flow.collect("kept", odd)


@pytest.mark.parametrize("scheduler", ["central", "central-stealing", "local", "stealing"])
def test_results_depend_on_no_scheduler(scheduler):
    flow, kept = scaled()
    report = flow.run(workers=2, machines=2, scheduler=scheduler, profile=True)
    assert "<pre>" in ab.flow.FlowReport(report._run, False)._repr_html_()
    assert kept == [number * 3 for number in range(1000) if number % 2]
    assert report.facts["iterations"] == 1000 and report.tasks >= 3500
    assert {row["name"]: row["operands"] for row in report.rows()}["odd"] == 500
    assert report.svg().startswith("<svg") and "FlowReport" in repr(report)


def test_a_flow_runs_again_and_from_several_threads():
    flow, kept = scaled()
    threads = [threading.Thread(target=flow.run, kwargs={"workers": 2}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(kept) == sorted(4 * [number * 3 for number in range(1000) if number % 2])


def test_an_iterator_is_for_one_run_and_placing_asks_for_none():
    asked = []

    class Items:
        def __iter__(self):
            asked.append(self)
            return iter(range(5))

    flow = ab.Flow()
    kept = flow.collect("kept", flow.source("items", Items()))
    flow.place("heft", workers=2)
    assert not asked
    flow.run()
    flow.run()
    assert kept == 2 * list(range(5)) and len(asked) == 2
    flow = ab.Flow()
    flow.source("once", (item for item in range(5)))
    flow.run()
    with pytest.raises(ab.errors.InputError, match="'once' is an iterator"):
        flow.run()


def test_what_has_a_state_is_called_in_order_and_flows_nest():
    inner, seen = ab.Flow(), []

    def inside(number):
        flow = ab.Flow()
        squares = flow.node("square", lambda item: item * item, flow.source("items", range(number)))
        kept = flow.collect("kept", squares)
        flow.run(workers=1)
        return sum(kept)

    sums = inner.node("sums", inside, inner.source("numbers", range(20)))
    inner.serializer("seen", seen.append, sums)
    inner.run(workers=3)
    assert seen == [sum(item * item for item in range(number)) for number in range(20)]


def test_without_a_source_there_are_so_many_iterations():
    flow = ab.Flow()
    count = flow.collect("count", flow.node("twice", lambda number: 2 * number, flow.feeder("one", 1)))
    flow.run(iterations=7)
    assert count == [2] * 7


def test_placements_are_taken_and_counted():
    flow, kept = scaled()
    allocation = flow.place("heft", workers=2, machines=2)
    assert allocation.keys() == {"frames", "scale", "scaled", "odd", "kept"} and set(allocation.values()) <= {0, 1}
    everywhere = {name: 0 for name in allocation}
    assert flow.run(workers=2, machines=2, scheduler="local", allocation=everywhere).facts["traffic"]["messages"] == 0
    apart = {**everywhere, "scaled": 1}
    traffic = flow.run(workers=2, machines=2, scheduler="local", allocation=apart).facts["traffic"]
    assert traffic["messages"] >= 3000
    with pytest.raises(ab.errors.InputError, match="'scale'"):
        flow.run(workers=2, allocation={name: 0 for name in allocation if name != "scale"})
    with pytest.raises(ab.errors.InputError, match="worker"):
        flow.run(workers=2, machines=2, scheduler="local", allocation={**everywhere, "odd": 5})


def test_measured_times_are_weights():
    flow = ab.Flow()
    slow = flow.node("slow", lambda at: time.sleep(0.002) or at, flow.source("items", range(20)))
    flow.weigh(flow.run(workers=1, profile=True))
    assert 0.002 <= slow.weight < 0.2


def test_workers_run_side_by_side_what_gives_up_the_lock():
    """Two functions that wait for each other can only end if both run."""
    barrier = threading.Barrier(2, timeout=20)
    flow = ab.Flow()
    start = flow.feeder("start", None)
    flow.node("here", lambda _: barrier.wait(), start)
    flow.node("there", lambda _: barrier.wait(), start)
    flow.run(workers=2)


def test_what_a_function_raises_is_raised_with_its_node():
    flow = ab.Flow()

    def half(number):
        if number == 17:
            raise ValueError(f"no half of {number}")
        return number / 2

    kept = flow.collect("kept", flow.node("halves", half, flow.source("numbers", range(100))))
    with pytest.raises(ValueError, match="no half of 17") as caught:
        flow.run(workers=2)
    assert any("halves" in note and "17" in note for note in caught.value.__notes__)
    assert kept == [number / 2 for number in range(len(kept))] and len(kept) <= 17

    def numbers():
        yield 1
        raise OSError("the camera is gone")

    flow = ab.Flow()
    flow.source("camera", numbers())
    with pytest.raises(OSError, match="gone") as caught:
        flow.run()
    assert "camera" in caught.value.__notes__[0]


def test_wrong_flows_are_refused_by_name():
    flow = ab.Flow()
    first = flow.source("first", range(3))
    with pytest.raises(ab.errors.InputError, match="fast"):
        flow.node("node", abs, first, fast=True)
    with pytest.raises(ab.errors.InputError, match="instead of a function"):
        flow.node("node", first)
    with pytest.raises(ab.errors.InputError, match="not a node of this flow"):
        flow.node("node", abs, ab.Flow().source("other", []))
    with pytest.raises(ab.errors.InputError, match="instead of items"):
        flow.source("nothing", 3)
    with pytest.raises(ab.errors.InputError, match="islice"):
        flow.run(iterations=2)
    with pytest.raises(ab.errors.InputError, match="one queue"):
        flow.run(scheduler="central", place="heft")
    with pytest.raises(ab.errors.InputError, match="profile=True"):
        flow.weigh(flow.run())
    with pytest.raises(ab.errors.InputError, match="no nodes"):
        ab.Flow().run()
    with pytest.raises(ab.errors.InputError, match="fame"):
        flow.run(scheduler="fame")
    with pytest.raises(ab.errors.InputError, match="multiple"):
        flow.run(workers=3, machines=2)
    with pytest.raises(ab.errors.InputError, match="workers"):
        flow.run(workers=-1)
    with pytest.raises(ab.errors.InputError, match="window"):
        flow.run(window=0.5)
    with pytest.raises(ab.errors.InputError, match="'first' has pin -1"):
        first.pin = -1
        flow.run()
    first.pin = None
    with pytest.raises(ab.errors.InputError, match="worker 9"):
        bound = ab.Flow()
        bound.source("first", range(3), pin=9)
        bound.run(workers=2)
    flow.source("second", range(4))
    with pytest.raises(ab.errors.InputError, match="same number of items"):
        flow.run()
    twins = ab.Flow()
    twins.feeder("twin", 1)
    twins.feeder("twin", 2)
    with pytest.raises(ab.errors.InputError, match="twin"):
        twins.run()
    alone = ab.Flow()
    alone.node("alone", print)
    with pytest.raises(ab.errors.InputError, match="reads no port"):
        alone.run()


def test_an_interrupt_ends_a_run(interruptible):
    flow = ab.Flow()
    forever = flow.source("forever", iter(int, 1))
    flow.node("rest", lambda _: time.sleep(0.001), forever)
    killer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    killer.start()
    with pytest.raises(KeyboardInterrupt):
        flow.run(workers=2)
    killer.join()


def test_operands_are_not_kept():
    class Operand:
        alive = 0

        def __init__(self):
            Operand.alive += 1

        def __del__(self):
            Operand.alive -= 1

    flow, most = ab.Flow(), []
    made = flow.node("made", lambda _: Operand(), flow.source("numbers", range(2000)))
    flow.serializer("seen", lambda _: most.append(Operand.alive), made)
    flow.run(workers=2, window=8)
    assert max(most) <= 64
    # Operands that no Python thread has dropped are dropped with the next call that holds the lock.
    flow = ab.Flow()
    flow.source("none", [])
    flow.run()
    assert Operand.alive == 0


def test_functions_of_the_standard_library_go_as_they_are():
    flow = ab.Flow()
    blocks = [bytes([at]) * 100_000 for at in range(16)]
    sums = flow.collect("sums", flow.node("hash", lambda block: hashlib.sha256(block).hexdigest(), flow.source("blocks", blocks)))
    flow.run(workers=2)
    assert sums == [hashlib.sha256(block).hexdigest() for block in blocks]
