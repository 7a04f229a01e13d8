"""Code that runs on the nodes of a cluster: an actor that measures a node, and an actor that computes one stage."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import queue
import statistics
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from typing import Any

import numpy as np

from .. import _arrays, _native
from ..errors import AnabranchError, DeviceError, InputError
from ..session import Session
from ..views import Devices
from ._channel import Address, Inbox, Packet, Wire
from ._routes import STATE, Arrived, StageRoute, message

DEVICE_OPTIONS = ("devices", "cpu_devices", "threads", "gpu", "software_gpu", "gpu_backend", "memory")
"""Options of a session that select devices."""
State = tuple[list[tuple[str, str]], int]
"""Outputs of an input that are inputs of the next, and the number of sequences."""
_SMALL, _LARGE = 8, 4 << 20
"""Bytes of the values that links are measured with."""
_PROBES = 15
_STREAM, _FLIGHT = 200, 4
"""Values of a stream, and how many of them are on their way."""
_RECENT = 200
"""Runs of a stage whose times are kept for reports."""


def ray_module() -> Any:
    """Returns the module ``ray``.

    Raises:
        InputError: If it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise InputError("anabranch.cluster needs the package ray; install it, for example with: pip install ray") from error
    return ray


def version() -> str:
    """Version of this package, as installed."""
    try:
        return importlib.metadata.version("anabranch")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def own_address() -> str:
    """Address of the node on which this process runs."""
    return str(ray_module().util.get_node_ip_address())


class Host:
    """Measures the node on which it runs."""

    def __init__(self, options: Mapping[str, Any], key: bytes) -> None:
        self._options, self._key = dict(options), key
        # As in a stage, one thread receives and another answers.
        self._arrived: queue.SimpleQueue[Wire] = queue.SimpleQueue()
        threading.Thread(target=self._answer, name="anabranch echo", daemon=True).start()
        self._inbox = Inbox(own_address(), key, lambda wire, head, packet: self._arrived.put(wire), lambda text: None)

    def about(self) -> dict[str, Any]:
        """Version of the package, name of the machine, and address for probes."""
        return {"version": version(), "host": os.uname().nodename, "address": self._inbox.address}

    def devices(self) -> list[dict[str, Any]]:
        """The node's devices: name, kind and memory."""
        rows = Devices(_native.devices(_arrays.dumps(self._options)))
        return [{key: row[key] for key in ("name", "kind", "description", "memory")} for row in rows]

    def times(
        self,
        model: Any,
        digest: str,
        options: Mapping[str, Any],
        inputs: Mapping[str, Any] | None,
        measure: bool,
        state: State,
    ) -> dict[str, Any]:
        """Times of a model's nodes on each of this node's devices."""
        session = open_session(model, digest, options)
        return dict(json.loads(session._session.times(_arrays.given(inputs, session._declared), measure, state)))

    def probe(self, name: str, address: Address) -> tuple[float, float]:
        """Latency in seconds and rate in bytes per second of the link from this node to another."""
        try:
            return probe(name, address, self._key)
        except (OSError, EOFError) as error:
            raise DeviceError(f"the link to {name} cannot be measured: {error}") from None

    def _answer(self) -> None:
        while True:
            try:
                self._arrived.get().send({}, {})
            except OSError:
                # The other end has ended.
                continue


def probe(name: str, address: Address, key: bytes) -> tuple[float, float]:
    """Latency in seconds and rate in bytes per second of the link from here to the address of a `Host`.

    The latency is half of the time between the answers to a stream of small values, or half of the time of one value's way there and
    back, whichever is longer: it contains what the processes at both ends do for each value.
    """
    link = wire(name, address, key)
    try:
        small, large = (_round_trip(link, {"value": np.ones(size, np.uint8)}) for size in (_SMALL, _LARGE))
        stream = _stream_period(link, {"value": np.ones(_SMALL, np.uint8)})
    finally:
        link.close()
    return max(small, stream) / 2, (_LARGE - _SMALL) / max(large - small, 1e-9)


def _round_trip(wire: Wire, packet: Packet) -> float:
    times = []
    for _ in range(_PROBES):
        begun = time.perf_counter()
        wire.send({}, packet)
        wire.receive()
        times.append(time.perf_counter() - begun)
    return statistics.median(times[1:])


def _stream_period(wire: Wire, packet: Packet) -> float:
    times = []
    for sent in range(_STREAM + _FLIGHT):
        if sent >= _FLIGHT:
            wire.receive()
            times.append(time.perf_counter())
        if sent < _STREAM:
            wire.send({}, packet)
    return (times[-1] - times[_FLIGHT]) / (len(times) - 1 - _FLIGHT)


@dataclass
class _OwnStage:
    """A stage of this process."""

    at: int
    name: str
    stage: Any
    # Slots that it reads, and names of the model's inputs by slot.
    reads: list[str]
    inputs: dict[str, str]
    route: StageRoute = field(default_factory=StageRoute)
    # The input that it computes next.
    number: int = 0
    busy: float = 0.0
    count: int = 0


class StageHost:
    """Computes stages of a model on one device, for one input of a stream after the other."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._arrived = threading.Condition()
        self._failure: str | None = None
        # Inputs of which something has arrived, by their numbers.
        self._inputs: dict[int, Arrived] = {}
        self._stages: list[_OwnStage] = []
        self._recent: deque[tuple[int, float, float]] = deque(maxlen=_RECENT)
        self._sent: dict[str, int] = {}

    def open(
        self,
        model: Any,
        digests: tuple[str, str],
        options: Mapping[str, Any],
        inputs: Mapping[str, Any] | None,
        stages: Sequence[Sequence[str]],
        own: Sequence[int],
        path: str,
        state: State,
        saved: Packet,
    ) -> tuple[Address, list[dict[str, Any]], Packet]:
        """Opens its `own` ones of these stages on the device at `path`, as in ``node1/cpu0``. They go on from `saved` states. `digests` are
        those of the model's file and of all weights. Returns the address to which inputs are sent, the slots of each own stage, and the
        outputs of the model that are constants."""
        session = open_session(model, digests[0], options)
        given, nodes = _arrays.given(inputs, session._declared), [list(names) for names in stages]
        slots = []
        for at in own:
            stage = session._session.stage(given, nodes, at, path.partition("/")[2], state)
            stage.restore(_arrays.given(saved, {}))
            slots.append(about := json.loads(stage.data()))
            named = {slot: name for name, slot in about["inputs"]}
            self._stages.append(_OwnStage(at, f"stage {at} on {path}", stage, about["reads"], named))
        # Other files with weights may have changed since the division.
        if isinstance(model, str) and digest_of_weights(model, options, given, state) != digests[1]:
            raise InputError(f"{model}: the weights differ from those of the process which opened the pipeline; copy their files again")
        self._token = _native.CancelToken()
        self._inbox = Inbox(own_address(), self._key, self._keep, self._give_up)
        constants = {name: _arrays.array(dtype, shape, memory) for name, dtype, shape, memory in stage.constants()}
        return self._inbox.address, slots, constants

    def work(self, number: int, step: int, routes: Sequence[StageRoute], peers: Mapping[int, Sequence[tuple[str, Address]]]) -> None:
        """Computes the inputs `number`, `number` + `step` and so on, the oldest first. `routes` are those of its stages. `peers` have names
        and addresses, and take inputs in turn. Ends only by an error: a peer is gone, or memory is short."""
        wires = {peer: [(name, wire(name, address, self._key)) for name, address in targets] for peer, targets in peers.items()}
        for stage, route in zip(self._stages, routes):
            stage.route, stage.number = route, number
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: self._failure or self._next() is not None)
                if self._failure:
                    raise DeviceError(self._failure)
                if (own := self._next()) is None:
                    continue
                input = self._inputs[own.number]
            about = dict(input.head)
            packet, error = self._computed(own, input)
            for peer, slots in own.route.sends:
                name, target = wires[peer][own.number % len(wires[peer])]
                head, values = message(about, slots, packet, error)
                values.update({name: state for name, state in packet.items() if name.startswith(STATE)})
                try:
                    target.send(head, values)
                except OSError as gone:
                    raise DeviceError(f"{name} is gone: {gone}") from None
                self._sent[name] = self._sent.get(name, 0) + size_of(values)
            with self._arrived:
                if own.route.stays:
                    input.add(*message(about, own.route.stays, packet, error))
                own.number += step
                self._drop(input, own)

    def statistics(self) -> dict[int, tuple[float, int]]:
        """Seconds of work and number of inputs up to now, by stage."""
        return {own.at: (own.busy, own.count) for own in self._stages}

    def history(self) -> dict[str, Any]:
        """Number, begin and end of the last runs, and bytes that were sent, by target."""
        return {"runs": list(self._recent), "sent": dict(self._sent)}

    def clock(self) -> float:
        """Seconds of the clock of `history`."""
        return time.perf_counter()

    def ping(self) -> int:
        """Answers while the process lives, also while it computes."""
        return os.getpid()

    def _keep(self, wire: Wire, head: dict[str, Any], packet: Packet) -> None:
        with self._arrived:
            self._inputs.setdefault(head["number"], Arrived()).add(head, packet)
            self._arrived.notify()

    def _give_up(self, text: str) -> None:
        with self._arrived:
            self._failure = text
            self._arrived.notify()

    def _next(self) -> _OwnStage | None:
        """The stage of the oldest input that can begin."""
        ready = [own for own in self._stages if own.number in self._inputs and self._inputs[own.number].has(own.route.needs)]
        return min(ready, key=lambda own: (own.number, own.at), default=None)

    def _drop(self, input: Arrived, done: _OwnStage) -> None:
        """Drops what no stage of this process reads any more."""
        number = input.head["number"]
        left = [own.route.needs for own in self._stages if own.number <= number]
        if not left:
            del self._inputs[number]
        for slot in done.route.needs:
            if not any(slot in needs for needs in left):
                input.values.pop(slot, None)

    def _computed(self, own: _OwnStage, input: Arrived) -> tuple[Packet, dict[str, Any] | None]:
        """Values of a stage for an input, with those that it passes on and with states, or the error of this stage or an earlier one."""
        if (failed := input.error(own.route.needs)) is not None:
            return {}, failed
        begun = time.perf_counter()
        try:
            packet = self._run(own, input)
        except AnabranchError as error:
            return {}, {**packed(own.name, error), "stage": own.at}
        finally:
            ended = time.perf_counter()
            own.busy, own.count = own.busy + ended - begun, own.count + 1
            self._recent.append((own.number, begun, ended))
        return packet, None

    def _run(self, own: _OwnStage, input: Arrived) -> Packet:
        packet, head = input.packet(own.route.needs), input.head
        if own.route.verifies:
            given = {own.inputs[slot]: packet[slot] for slot in own.route.verifies if slot in packet}
            own.stage.verify(_arrays.given(given, {}), own.route.verifies)
        values = _arrays.given({slot: packet[slot] for slot in own.reads}, {})
        made = own.stage.run(values, self._token, (head["sequence"], head["first"]))
        packet.update({slot: _arrays.array(dtype, shape, memory) for slot, dtype, shape, memory in made})
        if head["keep"]:
            kept = {STATE + name: _arrays.array(dtype, shape, memory) for name, dtype, shape, memory in own.stage.states()}
            packet.update(input.states | kept)
        return packet


def size_of(packet: Packet) -> int:
    """Bytes of the values of an input."""
    return sum(value.nbytes for value in packet.values())


def wire(name: str, address: Address, key: bytes) -> Wire:
    """Connects to a process by its name and address.

    Raises:
        DeviceError: If it cannot be reached.
    """
    try:
        return Wire.to(address, key)
    except (OSError, EOFError, AuthenticationError) as error:
        raise DeviceError(f"{name} cannot be reached: {error or type(error).__name__}; nodes must reach each other's ports") from None


def open_session(model: Any, digest: str, options: Mapping[str, Any]) -> Session:
    """Opens a session. Errors say what is missing or different on this node."""
    if isinstance(model, str):
        if not os.path.exists(model):
            raise InputError(f"{model}: there is no such file on this node; use a path that all nodes share, or ship=True")
        if digest_of(model) != digest:
            raise InputError(f"{model}: the file differs from that of the process which opened the pipeline; copy it again, or use ship=True")
    return Session(model, **options)


_WHOLE, _SAMPLES = 256 << 20, 64
"""Bytes up to which a whole file is compared, and samples of 1 MiB that are compared of a larger one."""


def digest_of(path: str) -> str:
    """Digest of a model's file, without the files that its weights may lie in."""
    size = os.path.getsize(path)
    found = hashlib.blake2b(str(size).encode(), digest_size=16)
    with open(path, "rb") as file:
        if size <= _WHOLE:
            found.update(file.read())
        for sample in range(_SAMPLES if size > _WHOLE else 0):
            file.seek((size - (1 << 20)) * sample // (_SAMPLES - 1))
            found.update(file.read(1 << 20))
    return found.hexdigest()


def digest_of_weights(model: str, options: Mapping[str, Any], given: Sequence[_arrays.Given], state: State) -> str:
    """Digest of a model's constants, as the times of a node have it. It reads samples of what lies in other files."""
    # Rates that were measured could change the kernels of a stage in the same session.
    session = Session(model, **{**options, "calibrate": False})
    return str(json.loads(session._session.times(list(given), False, state))["constants"])


_FIELDS = ("kind", "file", "node", "device", "input")


def packed(place: str, error: AnabranchError) -> dict[str, Any]:
    """An error as data, with its place in the text."""
    return {"class": type(error).__name__, "text": f"{place}: {error}", **{field: getattr(error, field) for field in _FIELDS}}


def unpacked(data: Mapping[str, Any]) -> AnabranchError:
    """The error that was packed."""
    from .. import errors

    cls = getattr(errors, str(data["class"]), None)
    known = isinstance(cls, type) and issubclass(cls, AnabranchError)
    made: AnabranchError = (cls if known else errors.InternalError)(data["text"])
    for field in _FIELDS:
        setattr(made, field, data[field])
    return made


def text_of(error: BaseException) -> str:
    """The one line of an error that a person needs."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        error = cause
    if isinstance(error, AnabranchError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
