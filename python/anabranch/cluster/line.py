"""The processes of a pipeline's stages, and the connections between them."""

from __future__ import annotations

import functools
import queue
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import _host
from . import platform as _platform
from ._channel import Inbox, Packet, Wire

_GLANCE = 0.1
"""Seconds between looks whether the processes still work."""


_TRIPS = 5
"""Calls that the clocks of two processes are compared with."""


class Failure(Exception):
    """A process or a connection of a line failed."""


@dataclass
class Replica:
    """One stage on one device, in a process."""

    node: str
    path: str
    actor: Any


class Line:
    """Stages at work, each in processes of its own.

    Inputs are numbered from 0. Input `n` is computed by process ``n % r`` of a stage of `r` processes, so that the devices of an input
    do not depend on timing.
    """

    def __init__(self, nodes: Mapping[str, str], division: Mapping[str, Any], given: tuple[Any, ...], state: tuple[Any, Packet], timeout: float) -> None:
        """Opens the stages of a division. `given` are the model, its digest, the options of sessions, and inputs for shapes. `state` is
        what stages keep from input to input, and the states that they go on from."""
        self._ray = _host.ray_module()
        self._arrived = threading.Condition()
        self._results: dict[int, tuple[dict[str, Any], Packet]] = {}
        self._sent = self._taken = 0
        self._failure: str | None = None
        self.constants: Packet = {}
        # Bytes that were sent to the first stage, by device.
        self.sent: dict[str, int] = {}
        self.stages: list[list[Replica]] = []
        self._wires: list[Wire] = []
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
        stages = [stage["nodes"] for stage in division["stages"]]
        bound, saved = state
        # Once for all stages.
        kept = self._ray.put(saved)
        opening = []
        for at, stage in enumerate(division["stages"]):
            replicas = []
            for path in stage["devices"]:
                node = path.partition("/")[0]
                placed = _stage_class().options(num_cpus=0, max_restarts=0, scheduling_strategy=_platform.on_node(nodes[node]))
                replica = Replica(node, path, placed.remote(key))
                opening.append(replica.actor.open.remote(*given, stages, at, path, bound, kept))
                replicas.append(replica)
            self.stages.append(replicas)
        addresses = []
        for replica, opened in zip(self.replicas(), opening):
            address, self.constants = _platform.wait(replica.path, opened, timeout)
            addresses.append(address)
        targets = [(replica.path, address) for replica, address in zip(self.replicas(), addresses)]
        self._wires = [_host.wire(*target, key) for target in targets[: len(self.stages[0])]]
        for at, replicas in enumerate(self.stages):
            targets = targets[len(replicas) :]
            following = targets[: len(self.stages[at + 1])] if at + 1 < len(self.stages) else [(_platform.OUTSIDE, self._inbox.address)]
            for place, replica in enumerate(replicas):
                self._work.append((replica.path, replica.actor.work.remote(place, len(replicas), following)))

    def replicas(self) -> list[Replica]:
        """All processes, in the order of stages."""
        return [replica for stage in self.stages for replica in stage]

    def submit(self, packet: Packet, about: Mapping[str, Any]) -> None:
        """Sends an input, without waiting for it. The caller must not write to its arrays until its result was taken. `about`: its
        ``sequence``, whether it is the ``first`` of it, and whether stages shall ``keep`` their states by sending them with it."""
        self._outbox.put((self._sent, about, packet))
        self._sent += 1

    def take(self, hang: float) -> Packet:
        """Waits for the result of the next input. A stage may take any time, as long as its process answers every `hang` seconds.

        Raises:
            Failure: If a process has ended or does not answer.
            AnabranchError: The error of this input.
        """
        looked = time.monotonic()
        while True:
            with self._arrived:
                if self._arrived.wait_for(lambda: self._taken in self._results, _GLANCE):
                    head, packet = self._results.pop(self._taken)
                    self._taken += 1
                    break
            if (why := self._why()) is not None:
                raise Failure(why)
            if time.monotonic() - looked > hang:
                if silent := self.silent(hang):
                    raise Failure(f"{silent[0].path} does not answer for {hang:g} s")
                looked = time.monotonic()
        if "error" in head:
            raise _host.unpacked(head["error"])
        return packet

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
        stages = [[(replica.path, replica.actor.statistics.options(concurrency_group="health").remote()) for replica in stage] for stage in self.stages]
        answers = [answer for stage in stages for _, answer in stage]
        self._ray.wait(answers, num_returns=len(answers), timeout=timeout)
        return [{path: self._mean(answer) for path, answer in stage} for stage in stages]

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
        for wire in self._wires:
            wire.close()
        _platform.stop(replica.actor for replica in self.replicas())

    def _mean(self, answer: Any) -> float | None:
        try:
            busy, count = self._ray.get(answer, timeout=0)
        except self._ray.exceptions.RayError:
            return None
        return busy / count if count else None

    def _send(self) -> None:
        while (item := self._outbox.get()) is not None:
            number, about, packet = item
            at = number % len(self._wires)
            try:
                self._wires[at].send({"number": number, **about}, packet)
                path = self.stages[0][at].path
                self.sent[path] = self.sent.get(path, 0) + _host.size_of(packet)
            except Exception as error:
                self._give_up(f"{self.stages[0][at].path} is gone: {error or type(error).__name__}")
                return

    def _give_up(self, text: str) -> None:
        with self._arrived:
            self._failure = text
            self._arrived.notify()

    def _keep(self, wire: Wire, head: dict[str, Any], packet: Packet) -> None:
        with self._arrived:
            self._results[head["number"]] = head, packet
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


@functools.cache
def _stage_class() -> Any:
    # Pings are answered while a stage computes.
    return _host.ray_module().remote(concurrency_groups={"health": 1})(_host.StageHost)
