"""The processes of a pipeline's stages, and the connections between them."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from typing import Any

from ..errors import DeviceError
from . import _host
from . import platform as _platform
from ._channel import Inbox, Packet, Wire

_GLANCE = 0.1
"""Seconds between looks whether the processes still work."""


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

    Data sets are numbered from 0. Data set `n` is computed by process ``n % r`` of a stage of `r` processes, so that the devices of a
    data set do not depend on timing.
    """

    def __init__(self, nodes: Mapping[str, str], division: Mapping[str, Any], given: tuple[Any, ...], timeout: float) -> None:
        """Opens the stages of a division. `given` are the model, the options of sessions, and inputs for shapes."""
        self._ray = _host.ray_module()
        self._arrived = threading.Condition()
        self._results: dict[int, tuple[dict[str, Any], Packet]] = {}
        self._sent = self._taken = 0
        self.constants: Packet = {}
        self.stages: list[list[Replica]] = []
        self._wires: list[Wire] = []
        key = secrets.token_bytes(32)
        self._inbox = Inbox(_host.own_address(), key, self._keep)
        try:
            self._work = self._open(nodes, division, given, key, timeout)
        except BaseException:
            self.stop()
            raise

    def _open(
        self, nodes: Mapping[str, str], division: Mapping[str, Any], given: tuple[Any, ...], key: bytes, timeout: float
    ) -> list[Any]:
        # Pings are answered while a stage computes.
        cls = self._ray.remote(concurrency_groups={"health": 1})(_host.StageHost)
        stages = [stage["nodes"] for stage in division["stages"]]
        opening = []
        for at, stage in enumerate(division["stages"]):
            replicas = []
            for path in stage["devices"]:
                node = path.partition("/")[0]
                placed = cls.options(num_cpus=0, max_restarts=0, scheduling_strategy=_platform.on_node(nodes[node]))
                replica = Replica(node, path, placed.remote(key))
                opening.append(replica.actor.open.remote(*given, stages, at, path))
                replicas.append(replica)
            self.stages.append(replicas)
        addresses = []
        for replica, opened in zip(self.replicas(), opening):
            address, self.constants = _platform.wait(replica.path, opened, timeout)
            addresses.append(address)
        try:
            self._wires = [Wire.to(address, key) for address in addresses[: len(self.stages[0])]]
        except (OSError, EOFError, AuthenticationError) as error:
            raise DeviceError(f"{self.stages[0][0].node} cannot be reached: {error}; nodes must reach each other's ports") from error
        work = []
        for at, replicas in enumerate(self.stages):
            addresses = addresses[len(replicas) :]
            targets = addresses[: len(self.stages[at + 1])] if at + 1 < len(self.stages) else [self._inbox.address]
            work += [replica.actor.work.remote(place, len(replicas), targets) for place, replica in enumerate(replicas)]
        return work

    def replicas(self) -> list[Replica]:
        """All processes, in the order of stages."""
        return [replica for stage in self.stages for replica in stage]

    def submit(self, packet: Packet) -> None:
        """Sends a data set.

        Raises:
            Failure: If the first stage is gone.
        """
        try:
            self._wires[self._sent % len(self._wires)].send({"number": self._sent}, packet)
        except (OSError, EOFError) as error:
            raise Failure(self._why() or f"{self.stages[0][0].path} is gone: {error}") from None
        self._sent += 1

    def take(self, hang: float) -> Packet:
        """Waits for the result of the next data set. A stage may take any time, as long as its process answers every `hang` seconds.

        Raises:
            Failure: If a process has ended or does not answer.
            AnabranchError: The error of this data set.
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
        """Mean seconds of work per data set of each stage, by device; None if it has computed nothing, or does not answer."""
        asked = [
            [(replica, replica.actor.statistics.options(concurrency_group="health").remote()) for replica in stage] for stage in self.stages
        ]
        return [{replica.path: self._mean(answer, timeout) for replica, answer in stage} for stage in asked]

    def stop(self) -> None:
        """Ends the processes, and drops the data sets in them."""
        self._inbox.close()
        for wire in self._wires:
            wire.close()
        _platform.stop(replica.actor for replica in self.replicas())
        self.stages = []

    def _mean(self, answer: Any, timeout: float) -> float | None:
        try:
            busy, count = self._ray.get(answer, timeout=timeout)
        except self._ray.exceptions.RayError:
            return None
        return busy / count if count else None

    def _keep(self, wire: Wire, head: dict[str, Any], packet: Packet) -> None:
        with self._arrived:
            self._results[head["number"]] = head, packet
            self._arrived.notify()

    def _why(self) -> str | None:
        """The cause if a process has ended."""
        ended, _ = self._ray.wait(self._work, num_returns=1, timeout=0)
        if not ended:
            return None
        try:
            self._ray.get(ended[0])
        except self._ray.exceptions.RayError as error:
            at = self._work.index(ended[0])
            return f"{self.replicas()[at].path}: {_host.text_of(error)}"
        return "a stage has ended"
