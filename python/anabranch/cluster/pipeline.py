"""A model as stages on the nodes of a cluster."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import secrets
import statistics
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from .. import _arrays, _native
from ..errors import AnabranchError, DeviceError, InputError, MemoryLimitError, PlacementError, Timeout, of_sample
from ..session import Session
from ..views import Rows
from . import _host, _routes
from . import platform as _platform
from ._channel import Packet
from ._inputs import InThread, in_own_words, packet_of, source_of
from ._options import verify
from .line import Failure, Line
from .platform import OUTSIDE, Node, Platform
from .report import Metrics, described

_KEPT_LATENCIES = 1024
"""Latencies of results that are kept."""
_START = 30.0
"""Seconds for a process to start: it loads Python and this package."""


@dataclass
class _Flight:
    """An input."""

    packet: Packet
    number: int
    # Whether its result was taken: it is computed again only for the states that it makes.
    is_taken: bool = False
    begun: float = field(default_factory=time.perf_counter)


class Pipeline:
    """A model as a pipeline over the nodes of a Ray cluster. As a context manager, it ends with its block.

        with ab.cluster.Pipeline("model.onnx", inputs={"x": first}) as pipeline:
            for outputs in pipeline.map({"x": frame} for frame in frames):
                ...

    Each device has one actor, with the constants of its own stages only. A stage may have several actors, which take inputs in turn. If all devices of a stage are of one kind, results are those of a session on that kind, bit for bit.

    If a node or an actor dies, or does not answer, the model is divided again over the other nodes, and all inputs without a result are
    computed again. No result is lost or comes twice. `events` says what happened. A node that joins the cluster is used after
    `rebalance`.

    Args:
        model: Path of an ONNX file that all nodes can read, the bytes of an ONNX file, or an ``onnx.ModelProto``.
        platform: Nodes and links to use. Without it they are measured first.
        inputs: Arrays of the shapes that all inputs will have. Missing inputs have the shapes that the model and `dims` declare.
        goal: ``period``, the least time between results, or ``latency``, the least time of each input.
        branches: Whether stages may run at the same time for one input, on different devices. This is for ``goal="latency"`` without
            `feed`; otherwise the stages are a chain.
        replicate: Whether several devices may each compute the same stage for different inputs.
        measure: Whether each device runs the whole model eight times first. Otherwise times are predicted.
        ship: Whether the file is sent to the nodes, instead of its path. Its weights must be inside.
        capacity: Inputs in flight, per actor.
        hang: Seconds without an answer after which a node counts as dead. A run on a node that answers may take longer.
        failures: Number of failures without a result in between after which `map` gives up.
        feed: Outputs of an input that are inputs of the next, such as ``{"present.*": "past.*"}``. The stage that reads such a state keeps
            it. It begins as `inputs` gives it, else as zeros, with each `map`.
        sequences: Number of sequences to which inputs belong in turn, each with a state of its own.
        checkpoint: Inputs after which stages send their states to this process. After a failure, the inputs since then are computed
            again. They are kept until then.
        dims, memory, costs, …: Options of `anabranch.Session`, for the sessions on all nodes.

    Raises:
        ModelError, InputError: If the model or an option is invalid.
        PlacementError: If the model does not fit the nodes' memory.
        DeviceError: If a node cannot be used.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | Any,
        platform: Platform | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        goal: str = "period",
        branches: bool = True,
        replicate: bool = True,
        measure: bool = True,
        ship: bool = False,
        capacity: int = 2,
        hang: float = 30.0,
        failures: int = 5,
        feed: Mapping[str, str] | None = None,
        sequences: int = 1,
        checkpoint: int = 64,
        timeout: float = 300.0,
        **options: Any,
    ) -> None:
        own = {"capacity": capacity, "failures": failures, "checkpoint": checkpoint, "hang": hang, "timeout": timeout, "goal": goal}
        flags = {"branches": branches, "replicate": replicate, "measure": measure, "ship": ship}
        verify({**own, **flags, "feed": feed, "sequences": sequences}, inputs, platform, options)
        # Ray would start a cluster of its own for what is given to it first.
        self._ray = _platform.connected()
        self._goal, self._measure = goal, measure
        self._wanted = (goal, replicate, branches)
        self._capacity, self._hang, self._failures, self._timeout = capacity, hang, failures, timeout
        self._options, self._inputs = options, dict(inputs or {})
        self._state, self._checkpoint = _arrays.state(feed, sequences), checkpoint
        # States of all stages after some input, and the inputs since then.
        self._saved: Packet = {}
        self._since: deque[_Flight] = deque()
        # As all nodes will open it: what is shipped needs its weights inside.
        source = source_of(model, ship)
        try:
            self._session = Session(source, **options)
        except AnabranchError as error:
            if not ship:
                raise
            raise _host.unpacked(_host.packed("ship=True sends only the model's own file", error)) from None
        self._name = os.path.basename(model) if isinstance(model, (str, os.PathLike)) else "model"
        self._metrics = Metrics(self._name)
        self._model: Any = self._ray.put(source) if isinstance(source, bytes) else source
        self._digest = "" if isinstance(source, bytes) else _host.digest_of(source)
        self._times: dict[str, dict[str, Any]] = {}
        self._line: Line | None = None
        # Data sets that the line has and whose results were not taken; failures without a result.
        self._sent = self._failed = 0
        self._division: dict[str, Any] = {}
        # Held by the open `map`; any thread may end it.
        self._mapping = threading.Lock()
        self._closed = False
        # Results of the last `map`, and the times of the first and the last of them.
        self._count, self._done = 0, (0.0, 0.0)
        self._latencies: deque[float] = deque(maxlen=_KEPT_LATENCIES)
        self.platform = platform or Platform.measure(timeout=timeout, **_device_options(options))
        self.events: list[str] = [] if platform else list(self.platform.events)
        self._alive = dict(self.platform.present())
        self.events += self.platform.absent()
        self._learn_times(self._alive)
        self._open_among_living()

    @property
    def plan(self) -> dict[str, Any]:
        """The stages with their devices, nodes, ``seconds`` on each device, ``bytes_in`` and ``weights``, the predicted ``period`` and
        ``latency`` in seconds, and the ``lower_bound`` of all divisions for the goal. Whether the stages are a ``chain``: otherwise each
        sends its values to the stages that read them, and ``messages`` has those between devices."""
        return dict(self._division)

    @property
    def measured(self) -> dict[str, Any]:
        """Measurements of the last `map`, in seconds: the number of ``results``, the ``period`` (mean between them), the ``latency`` (p50
        and p95 of the last 1024 results), and for each stage the mean seconds of work by device."""
        latencies, (first, last) = sorted(self._latencies), self._done
        return {
            "results": self._count,
            "period": (last - first) / (self._count - 1) if self._count > 1 else None,
            "latency": {"p50": statistics.median(latencies), "p95": latencies[int(0.95 * (len(latencies) - 1))]} if latencies else None,
            "stages": self._line.seconds(self._hang) if self._line else [],
        }

    def rows(self) -> Rows:
        """The stages as a table. Times are milliseconds and sizes bytes."""
        return Rows(
            {
                "stage": number,
                "devices": ", ".join(stage["devices"]),
                "nodes": len(stage["nodes"]),
                "first": stage["nodes"][0],
                "predicted_ms": max(stage["seconds"]) * 1e3,
                "bytes_in": stage["bytes_in"],
                "weights": stage["weights"],
            }
            for number, stage in enumerate(self._division["stages"])
        )

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes a page about the pipeline: predicted and measured times of stages, bytes of links, and the last runs of each device over
        time. Measurements are those of the last `map`, and of the stages since the model was divided last.

        Raises:
            InputError: If the pipeline was closed.
            OSError: If the file cannot be written.
        """
        self._refuse_if_closed()
        path = _platform.path_of("path", path)
        line = self._line
        history, sent = (line.history(self._hang), dict(line.sent)) if line is not None else ({}, {})
        about = described(self._division, self.measured, history, sent, self.platform)
        data = {"model": self._name, "goal": self._goal, "events": self.events, **about}
        _native.write_text(path, _native.divided_page(_arrays.dumps(data)))

    def map(self, inputs: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yields the outputs for each of these inputs, in order. Several inputs are in the pipeline at a time, and `inputs` is read only
        while there is capacity, after the results that are there were given out. While `inputs` blocks, none is given out. One `map` runs
        at a time.

        Raises:
            InputError: If another `map` is open, the pipeline was closed, or an input does not match the pipeline.
            DeviceError: If nodes fail again and again.
            AnabranchError: The failure of the first input that fails.
        """
        if not isinstance(inputs, Iterable):
            raise InputError(f"`inputs` is {type(inputs).__name__}; give an iterable of dictionaries from names to arrays")
        return self._mapped(iter(inputs), lambda: True)

    def _mapped(self, inputs: Iterator[Mapping[str, Any]], has_next: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """The results of `map`. `has_next`: whether `inputs` can be read now, instead of waiting for the next result."""
        self._enter()
        self._metrics.begin()
        flights: deque[_Flight] = deque()
        can_read = lambda: len(flights) < self._most and has_next()  # noqa: E731
        try:
            for number in itertools.count():
                yield from self._results(flights, can_read)
                try:
                    packet = self._packet(next(inputs), number)
                except StopIteration:
                    break
                except futures.CancelledError:
                    raise
                except Exception:
                    # The inputs before it are right.
                    yield from self._results(flights)
                    raise
                flights.append(_Flight(packet, number))
                self._send(flights)
            yield from self._results(flights)
        finally:
            try:
                self._metrics.update()
                self._drain()
            except BaseException:
                self._stop()
                raise
            finally:
                self._mapping.release()

    def _packet(self, given: Mapping[str, Any], number: int) -> Packet:
        try:
            return packet_of(given, self._session, self._inputs, self._bound)
        except AnabranchError as error:
            raise of_sample(error, number) from None

    async def map_async(
        self, inputs: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]]
    ) -> AsyncIterator[dict[str, Any]]:
        """Yields the outputs as `map` does, for ``async for``. `inputs` may be asynchronous, too: results are then given out also while it
        waits."""
        source, done = None, object()
        if isinstance(inputs, AsyncIterable):
            source = InThread(inputs.__aiter__(), asyncio.get_running_loop(), self._wake)
            results = self._mapped(source, source.has_next)
        else:
            results = self.map(inputs)
        running: asyncio.Future[Any] | None = None
        try:
            while True:
                running = asyncio.ensure_future(asyncio.to_thread(next, results, done))
                # Cancelling this task must not leave the generator at work.
                if (outputs := await asyncio.shield(running)) is done:
                    return
                yield outputs
        finally:
            if source is not None:
                source.cancel()
            while running is not None and not running.done():
                try:
                    await asyncio.wait([running])
                except asyncio.CancelledError:
                    # Cancelled once more.
                    pass
            await asyncio.to_thread(results.close)  # type: ignore[attr-defined]

    def rebalance(self, progress: Callable[[str], object] | None = None) -> None:
        """Divides the model again over all nodes that are alive now. Nodes that are new are measured, and so are their links; the others
        keep what the platform says of them.

        Raises:
            InputError: If a `map` is open, or the pipeline was closed.
        """
        _platform.verify_progress(progress)
        self._enter()
        try:
            present = set(_platform.alive().values())
            if present - {node.id for node in self.platform.nodes}:
                found = Platform._measured(self._timeout, progress, _device_options(self._options), strict=False)
                self.events += found.events
                self.platform = self.platform._with(found)
            self._alive = dict(self.platform.present())
            self.events += [line for line in self.platform.absent() if line not in self.events]
            if fresh := {name: node for name, node in self._alive.items() if name not in self._times}:
                self._learn_times(fresh)
            self._open_among_living()
        finally:
            self._mapping.release()

    def close(self) -> None:
        """Ends the actors of all stages."""
        self._closed = True
        self._stop()

    def __enter__(self) -> Pipeline:
        self._refuse_if_closed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _enter(self) -> None:
        self._refuse_if_closed()
        if not self._mapping.acquire(blocking=False):
            raise InputError("another `map` of this pipeline is open; read all its results, or close it, before the next")
        self._count, self._done = 0, (0.0, 0.0)
        self._latencies.clear()
        self._since.clear()
        self._failed, self._saved = 0, {}

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise InputError("the pipeline was closed; open another")

    def _learn_times(self, nodes: Mapping[str, str]) -> None:
        """Asks nodes for the times of the model on their devices. Nodes that have died are left out."""
        options = _device_options(self._options)
        hosts = _platform.start_hosts(nodes, options, secrets.token_bytes(32), self._timeout, self.events)
        try:
            # One after the other: nodes may share a machine.
            for name, host in hosts.items():
                given = (self._model, self._digest, self._options, self._inputs, self._measure, self._state)
                try:
                    self._times[name] = _platform.wait(name, host.times.remote(*given), self._timeout)
                    self.events += self.platform.missing(name, [device["name"] for device in self._times[name]["devices"]])
                except _platform.NodeGone as error:
                    self.events.append(f"{name} is left out ({error})")
        finally:
            _platform.stop(hosts.values())
        self._alive = {name: node for name, node in self._alive.items() if name in self._times}
        if not self._alive:
            raise DeviceError(f"no node of the platform is left: {self.events[-1]}; start nodes, and measure again")

    def _open_among_living(self) -> None:
        """Opens the stages. If that fails because nodes have died, without them."""
        while True:
            try:
                return self._open()
            except DeviceError as error:
                before = list(self._alive)
                self._drop_dead_nodes()
                if not self._alive or before == list(self._alive):
                    raise
                self.events.append(f"the stages could not be opened ({error}): the model is divided again over {', '.join(self._alive)}")

    def _open(self) -> None:
        """Divides the model over the nodes that are alive, and starts its stages."""
        try:
            self._open_within_memory()
        except (MemoryLimitError, PlacementError) as error:
            if not (lost := [node.name for node in self.platform.nodes if node.name not in self._alive]):
                raise
            step = "measure the platform again" if self._line is None else "call rebalance()"
            text = f"{error}; {', '.join(lost)} of the platform cannot be used: start nodes, and {step}"
            raise _host.unpacked({**_host.packed("", error), "text": text}) from None

    def _open_within_memory(self) -> None:
        """Starts the stages. If one does not fit its device after all, the device is given less memory, and the model is divided again."""
        times = {node.name: self._limited(node) for node in self.platform.nodes if node.name in self._alive}
        while True:
            self._division = self._divide(times)
            self._stop()
            try:
                weights = next(iter(times.values()))["constants"]
                given = (self._model, (self._digest, weights), self._options, self._inputs)
                line = Line(self._alive, self._division, given, (self._state, self._saved), self._timeout)
                # Its threads keep the line and its processes when this pipeline is gone.
                self._end = weakref.finalize(self, line.stop)
                self._line = line
                self._most = self._capacity * len(self._line.replicas())
                if self._closed:
                    # By another thread, which did not see this line.
                    self._stop()
                    self._refuse_if_closed()
                return
            except (MemoryLimitError, PlacementError) as error:
                if not self._shrink(times, error):
                    raise

    def _limited(self, node: Node) -> dict[str, Any]:
        """The times on a node's devices, with the memory that the platform states. Devices that the platform lacks are left out."""
        memory = {device["name"]: device.get("memory") for device in node.devices}
        times = self._times[node.name]
        devices = [{**device, "memory": memory[device["name"]]} for device in times["devices"] if device["name"] in memory]
        return {**times, "devices": devices}

    def _divide(self, times: Mapping[str, Any]) -> dict[str, Any]:
        ends = {*self._alive, OUTSIDE}
        links = [
            {"from": source, "to": target, "latency": latency, "rate": rate}
            for (source, target), (latency, rate) in self.platform.links.items()
            if source in ends and target in ends
        ]
        machines = json.dumps({"machines": times, "links": links})
        given = _arrays.given(self._inputs, self._session._declared)
        return dict(json.loads(self._session._session.divide(given, machines, self._wanted, self._state)))

    @property
    def _bound(self) -> dict[str, str]:
        """Outputs that are states, and the inputs that they become."""
        return dict(self._division["state"])

    def _stop(self) -> None:
        if self._line is not None:
            self._end()
        self._line, self._sent = None, 0

    def _shrink(self, times: Mapping[str, Any], error: AnabranchError) -> bool:
        """Gives the device on which a stage did not fit a tenth less memory. Whether there is something left to try."""
        place = str(error).partition(":")[0]
        node, _, name = place.partition("/")
        for device in times.get(node, {"devices": []})["devices"]:
            if device["name"] == name and device["memory"] is not None and device["memory"] > 1 << 10:
                device["memory"] = int(device["memory"] * 0.9)
                return True
        return False

    def _send(self, flights: deque[_Flight]) -> None:
        """Sends the inputs that the line does not have yet, while there is capacity."""
        while self._sent < min(len(flights), self._most):
            try:
                line = self._running()
            except Failure as failure:
                self._recover(flights, str(failure))
                continue
            flight = flights[self._sent]
            sequences, feeds = self._state[1], bool(self._state[0])
            keep = feeds and (flight.number + 1) % self._checkpoint == 0
            line.submit(
                flight.packet, {"sequence": flight.number % sequences, "first": flight.number < sequences, "keep": keep}
            )
            self._sent += 1

    def _results(self, flights: deque[_Flight], has_next: Callable[[], bool] = lambda: False) -> Iterator[dict[str, Any]]:
        """Yields the results of all inputs in flight, or those that are there before an input can be read."""
        while flights and (made := self._take(flights, has_next)) is not None:
            yield made

    def _take(self, flights: deque[_Flight], has_next: Callable[[], bool]) -> dict[str, Any] | None:
        """Waits for the first result that was not taken, or until an input can be read. Then it returns None."""
        while True:
            self._send(flights)
            try:
                if (made := self._running().take(self._hang, has_next)) is None:
                    return None
                self._sent -= 1
                flight = flights.popleft()
                self._keep(flight, made)
                if not flight.is_taken:
                    flight.is_taken = True
                    break
            except Failure as failure:
                self._recover(flights, str(failure))
            except AnabranchError as error:
                self._sent -= 1
                flight, dims = flights.popleft(), self._options.get("dims") or {}
                refused = in_own_words(error, flight.packet, self._session, self._inputs, dims)
                raise of_sample(refused, flight.number) from None
            except BaseException:
                # An interruption: nobody knows which results were taken.
                self._stop()
                raise
        self._failed, now = 0, time.perf_counter()
        self._count, self._done = self._count + 1, (self._done[0] if self._count else now, now)
        self._latencies.append(now - flight.begun)
        self._metrics.result(now - flight.begun)
        made.update({name: value.copy() for name, value in self._running().constants.items()})
        if self._session._makes_arrays:
            return {name: made[name] for name in self._session._kinds if name in made}
        outputs = _arrays.assembled(made.items(), self._session._kinds)
        return {name: _arrays.labelled(array, self._session._labels.get(name)) for name, array in outputs.items()}

    def _keep(self, flight: _Flight, made: Packet) -> None:
        """Keeps what is needed to compute states again: an input, or the states after it, which are taken from its result."""
        if states := {name: made.pop(name) for name in list(made) if name.startswith(_routes.STATE)}:
            self._saved = {name.removeprefix(_routes.STATE): state for name, state in states.items()}
            self._since.clear()
        elif self._state[0]:
            self._since.append(flight)

    def _drain(self) -> None:
        """Drops results that nobody will take, so that the next `map` begins with none."""
        while self._line is not None and self._sent > 0:
            try:
                self._line.take(self._hang)
            except Failure:
                # The next `map` opens the stages again.
                self._stop()
                return
            except AnabranchError:
                pass
            self._sent -= 1

    def _wake(self) -> None:
        """Makes `_take` look whether an input can be read. Any thread may do so."""
        if (line := self._line) is not None:
            line.wake()

    def _running(self) -> Line:
        """The stages at work. Starts them if an earlier `map` has ended them."""
        self._refuse_if_closed()
        if self._line is None:
            try:
                self._open()
            except (DeviceError, Timeout) as error:
                raise Failure(str(error)) from None
        assert self._line is not None
        return self._line

    def _recover(self, flights: deque[_Flight], why: str) -> None:
        """Divides the model again over the nodes that are left. All inputs without a result are sent again, and before them those whose
        states were lost."""
        count = len(self._since) + sum(at < self._sent or flight.is_taken for at, flight in enumerate(flights))
        flights.extendleft(reversed(self._since))
        self._since.clear()
        while True:
            self._refuse_if_closed()
            self._failed += 1
            if self._failed >= self._failures:
                self._stop()
                raise DeviceError(f"the cluster failed {self._failed} times without a result; the last time: {why}")
            before = list(self._alive)
            self._drop_dead_nodes()
            lost = [node for node in before if node not in self._alive]
            if not self._alive:
                self._stop()
                raise DeviceError(f"no node of the platform is left: {why}; start nodes, and call rebalance()")
            self._metrics.restart()
            self.events.append(
                f"{', '.join(lost) if lost else 'a process'} failed ({why}): the model is divided again over "
                f"{', '.join(self._alive)}, and {count} inputs are computed again"
            )
            try:
                self._open()
                return
            except (DeviceError, Timeout) as error:
                why = str(error)

    def _drop_dead_nodes(self) -> None:
        """Removes nodes that Ray has given up, and nodes that start no process."""
        self._alive = {name: node for name, node in self.platform.present().items() if name in self._alive}
        # If stages could not be opened, any node may be the cause.
        suspects = {replica.node for replica in self._line.silent(self._hang)} if self._line is not None else set(self._alive)
        for node in suspects & set(self._alive):
            try:
                hosts = _platform.start_hosts({node: self._alive[node]}, {}, secrets.token_bytes(32), max(self._hang, _START), self.events)
                _platform.stop(hosts.values())
            except AnabranchError as error:
                self.events.append(f"{node} is left out ({error})")
                del self._alive[node]


def _device_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in _host.DEVICE_OPTIONS}
