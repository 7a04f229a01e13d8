"""The processes of a pipeline's stages, and the connections between them."""

from __future__ import annotations

import functools
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _host
from . import platform as _platform
from ._channel import Inbox, Packet, Wire
from ._routes import Arrived, Routes, message

_GLANCE = 0.1
"""Seconds between looks whether the processes still work."""


_TRIPS = 5
"""Calls that the clocks of two processes are compared with."""


class Failure(Exception):
    """A process or a connection of a line failed."""


@dataclass
class Replica:
    """One device with its stages, in a process."""

    node: str
    path: str
    actor: Any
    stages: list[int]


class Line:
    """Stages at work, in one process for each device.

    Inputs are numbered from 0. Input `n` is computed by process ``n % r`` of a stage of `r` processes, so that the devices of an input
    do not depend on timing.
    """

    def __init__(self, nodes: Mapping[str, str], division: Mapping[str, Any], given: tuple[Any, ...], state: tuple[Any, Packet], timeout: float) -> None:
        """Opens the stages of a division. `given` are the model, the digests of its file and weights, the options of sessions, and inputs
        for shapes. `state` is what stages keep from input to input, and the states that they go on from."""
        self._ray = _host.ray_module()
        self._arrived = threading.Condition()
        self._results: dict[int, Arrived] = {}
        self._sent = self._taken = 0
        self._failure: str | None = None
        self.constants: Packet = {}
        # Bytes that were sent from here, by device.
        self.sent: dict[str, int] = {}
        self._replicas: list[Replica] = []
        self._wires: dict[str, Wire] = {}
        self._work: list[tuple[str, Any]] = []
        # Inputs are sent by a thread of their own: the caller waits for results alone, and looks at all processes meanwhile.
        self._outbox: queue.SimpleQueue[tuple[int, Mapping[str, Any], Packet] | None] = queue.SimpleQueue()
        key = secrets.token_bytes(32)
        self._inbox = Inbox(_host.own_address(), key, self._keep, self._give_up)
        try:
            self._open(nodes, division, given, state, key, timeout)
        except BaseException:
            self.stop()
            raise
        threading.Thread(target=self._send, name="anabranch sender", daemon=True).start()

    def _open(
        self,
        nodes: Mapping[str, str],
        division: Mapping[str, Any],
        given: tuple[Any, ...],
        state: tuple[Any, Packet],
        key: bytes,
        timeout: float,
    ) -> None:
        stages = division["stages"]
        bound, saved = state
        # Once for all stages.
        kept = self._ray.put(saved)
        own: dict[str, list[int]] = {}
        for at, stage in enumerate(stages):
            for path in stage["devices"]:
                own.setdefault(path, []).append(at)
        opening = []
        for path, numbers in own.items():
            node = path.partition("/")[0]
            placed = _stage_class().options(num_cpus=0, max_restarts=0, scheduling_strategy=_platform.on_node(nodes[node]))
            replica = Replica(node, path, placed.remote(key), numbers)
            opening.append(_quiet(replica.actor.open.remote(*given, [stage["nodes"] for stage in stages], numbers, path, bound, kept)))
            self._replicas.append(replica)
        addresses: dict[str, Any] = {}
        slots: dict[int, dict[str, Any]] = {}
        for replica, opened in zip(self._replicas, opening):
            addresses[replica.path], abouts, self.constants = _platform.wait(replica.path, opened, timeout)
            slots.update(zip(replica.stages, abouts))
        self._routes = Routes.of(division, [slots[at] for at in range(len(stages))])
        self._slots, self._outputs = dict(slots[0]["inputs"]), [output for output in slots[0]["outputs"] if "slot" in output]
        targets = [[(path, addresses[path]) for path in peer] for peer in self._routes.peers] + [[(_platform.OUTSIDE, self._inbox.address)]]
        for peer, _ in self._routes.sends:
            self._wires.update({path: _host.wire(path, address, key) for path, address in targets[peer]})
        for replica in self._replicas:
            routes = [self._routes.stages[at] for at in replica.stages]
            devices = stages[replica.stages[0]]["devices"]
            wanted = {peer: targets[peer] for route in routes for peer, _ in route.sends}
            work = replica.actor.work.remote(devices.index(replica.path), len(devices), routes, wanted)
            self._work.append((replica.path, _quiet(work)))

    def replicas(self) -> list[Replica]:
        """All processes, in the order of their first stages."""
        return self._replicas

    def submit(self, packet: Packet, about: Mapping[str, Any]) -> None:
        """Sends an input, without waiting for it. The caller must not write to its arrays until its result was taken. `about`: its
        ``sequence``, whether it is the ``first`` of it, and whether stages shall ``keep`` their states by sending them with it."""
        self._outbox.put((self._sent, about, packet))
        self._sent += 1

    def take(self, hang: float, has_next: Callable[[], bool] = lambda: False) -> Packet | None:
        """Waits for the result of the next input. A stage may take any time, as long as its process answers every `hang` seconds. If there
        is no result yet and `has_next`, returns None; `wake` makes it look again.

        Raises:
            Failure: If a process has ended or does not answer.
            AnabranchError: The error of this input.
        """
        looked = time.monotonic()
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: self._has_result() or has_next(), _GLANCE)
                if self._has_result():
                    result = self._results.pop(self._taken)
                    self._taken += 1
                    break
                if has_next():
                    return None
            if (why := self._why()) is not None:
                raise Failure(why)
            if time.monotonic() - looked > hang:
                if silent := self.silent(hang):
                    raise Failure(f"{silent[0].path} does not answer for {hang:g} s")
                looked = time.monotonic()
        if (error := result.error(self._routes.results)) is not None:
            raise _host.unpacked(error)
        values = result.packet(self._routes.results)
        made = {output["name"]: values[output["slot"]].reshape(output["shape"]) for output in self._outputs}
        return {**made, **result.states}

    def wake(self) -> None:
        """Makes `take` look whether there is a next input. Any thread may do so."""
        with self._arrived:
            self._arrived.notify()

    def silent(self, timeout: float) -> list[Replica]:
        """Processes that do not answer within `timeout` seconds. They are ended."""
        pings = [replica.actor.ping.options(concurrency_group="health").remote() for replica in self.replicas()]
        self._ray.wait(pings, num_returns=len(pings), timeout=timeout)
        silent = []
        for replica, ping in zip(self.replicas(), pings):
            try:
                self._ray.get(ping, timeout=0)
            except self._ray.exceptions.RayError:
                self._ray.kill(replica.actor)
                silent.append(replica)
        return silent

    def seconds(self, timeout: float) -> list[dict[str, float | None]]:
        """Mean seconds of work per input of each stage, by device; None if it has computed nothing, or does not answer."""
        asked = {replica.path: replica.actor.statistics.options(concurrency_group="health").remote() for replica in self._replicas}
        self._ray.wait(list(asked.values()), num_returns=len(asked), timeout=timeout)
        stages: dict[int, dict[str, float | None]] = {}
        for replica in self._replicas:
            try:
                answer = self._ray.get(asked[replica.path], timeout=0)
            except self._ray.exceptions.RayError:
                answer = {}
            for at in replica.stages:
                busy, count = answer.get(at, (0.0, 0))
                stages.setdefault(at, {})[replica.path] = busy / count if count else None
        return [stages[at] for at in sorted(stages)]

    def history(self, timeout: float) -> dict[str, dict[str, Any]]:
        """Of each device the last runs of its stage, in seconds of this process's clock, and the bytes that it has sent, by target."""
        found = {}
        for replica in self.replicas():
            try:
                trips = [self._trip(replica, timeout) for _ in range(_TRIPS)]
                history = self._ray.get(replica.actor.history.options(concurrency_group="health").remote(), timeout=timeout)
            except self._ray.exceptions.RayError:
                # It is gone, or does not answer; `take` finds out.
                continue
            _, ahead = min(trips)
            history["runs"] = [(number, begun - ahead, ended - ahead) for number, begun, ended in history["runs"]]
            found[replica.path] = history
        return found

    def _trip(self, replica: Replica, timeout: float) -> tuple[float, float]:
        """Seconds of a call, and seconds by which the clock of a process is ahead."""
        begun = time.perf_counter()
        theirs = self._ray.get(replica.actor.clock.options(concurrency_group="health").remote(), timeout=timeout)
        ended = time.perf_counter()
        return ended - begun, theirs - (begun + ended) / 2

    def stop(self) -> None:
        """Ends the processes, and drops the inputs in them."""
        self._outbox.put(None)
        self._inbox.close()
        for wire in self._wires.values():
            wire.close()
        _platform.stop(replica.actor for replica in self.replicas())

    def _has_result(self) -> bool:
        return self._taken in self._results and self._results[self._taken].has(self._routes.results)

    def _send(self) -> None:
        while (item := self._outbox.get()) is not None:
            number, about, packet = item
            values = {slot: packet[name] for name, slot in self._slots.items() if name in packet}
            for peer, slots in self._routes.sends:
                devices = self._routes.peers[peer]
                path = devices[number % len(devices)]
                try:
                    head, sent = message({"number": number, **about}, slots, values)
                    self._wires[path].send(head, sent)
                    self.sent[path] = self.sent.get(path, 0) + _host.size_of(sent)
                except Exception as error:
                    self._give_up(f"{path} is gone: {error or type(error).__name__}")
                    return

    def _give_up(self, text: str) -> None:
        with self._arrived:
            self._failure = text
            self._arrived.notify()

    def _keep(self, wire: Wire, head: dict[str, Any], packet: Packet) -> None:
        with self._arrived:
            self._results.setdefault(head["number"], Arrived()).add(head, packet)
            self._arrived.notify()

    def _why(self) -> str | None:
        """The cause if a process has ended, or a connection is broken."""
        ended, _ = self._ray.wait([work for _, work in self._work], num_returns=len(self._work), timeout=0)
        causes = []
        for path, work in self._work:
            if work not in ended:
                continue
            try:
                self._ray.get(work)
            except self._ray.exceptions.RayError as error:
                # A process that died comes before those that lost a connection because of that.
                causes.append((isinstance(error, self._ray.exceptions.RayTaskError), f"{path}: {_host.text_of(error)}"))
        return min(causes)[1] if causes else self._failure


def _quiet(call: Any) -> Any:
    """A call whose error Ray does not print if nobody asks for it: after the first error, or when the line was stopped."""
    call.future()
    return call


@functools.cache
def _stage_class() -> Any:
    # Pings are answered while a stage computes.
    return _host.ray_module().remote(concurrency_groups={"health": 1})(_host.StageHost)
