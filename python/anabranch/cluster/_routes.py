"""Ways of an input's values between the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._channel import Packet

STATE = "\0state/"
"""Begins the names of states that go with an input. No value of a model begins so."""
TOKEN = "\0token/"
"""Begins the names of empty values, which tell a stage or the caller only that an input has come so far."""


@dataclass
class StageRoute:
    """What a stage waits for and sends. Values are named by their slots."""

    # Slots without which it cannot begin, and those of them that come from the caller and are verified.
    needs: list[str] = field(default_factory=list)
    verifies: list[str] = field(default_factory=list)
    # Slots that other stages of its device read.
    stays: list[str] = field(default_factory=list)
    # Peers with the slots that they get, the most urgent first.
    sends: list[tuple[int, list[str]]] = field(default_factory=list)


@dataclass
class Routes:
    """Ways of all values. A peer is a list of devices, which take inputs in turn. The caller is the last peer."""

    peers: list[list[str]]
    stages: list[StageRoute]
    # What the caller sends, and what it waits for.
    sends: list[tuple[int, list[str]]]
    results: list[str]

    @classmethod
    def of(cls, division: Mapping[str, Any], slots: Sequence[Mapping[str, Any]]) -> Routes:
        """The ways between the stages of a division. `slots`: those that each stage reads, fills and drops."""
        devices = [list(stage["devices"]) for stage in division["stages"]]
        paths = list(dict.fromkeys(path for stage in devices for path in stage))
        if division["chain"]:
            return cls._over(_chain(slots), devices, list(range(len(devices))))
        return cls._over(_branches(slots), [[path] for path in paths], [paths.index(stage[0]) for stage in devices])

    @classmethod
    def _over(cls, edges: _Edges, peers: list[list[str]], peer_of: list[int]) -> Routes:
        """`edges`: slots by the stages that send and read them. `peer_of`: the peer of each stage."""
        caller, peer_of = len(peer_of), [*peer_of, len(peers)]
        # A stage that reads nothing begins with a token, and a stage that nothing reads ends with one.
        for stage in range(caller):
            if not any(reader == stage for _, reader in edges):
                edges[caller, stage] = [f"{TOKEN}begin/{stage}"]
            if not any(sender == stage for sender, _ in edges):
                edges[stage, caller] = [f"{TOKEN}end/{stage}"]
        stages = [StageRoute() for _ in range(caller)]
        results: list[str] = []
        sends: list[dict[int, list[str]]] = [{} for _ in range(caller + 1)]
        for (sender, reader), slots in sorted(edges.items(), key=lambda edge: edge[0][1]):
            if reader == caller:
                results += slots
            else:
                stages[reader].needs += slots
                if sender == caller:
                    stages[reader].verifies += [slot for slot in slots if not slot.startswith(TOKEN)]
            if sender != caller and peer_of[sender] == peer_of[reader]:
                stages[sender].stays += [slot for slot in slots if slot not in stages[sender].stays]
            else:
                sent = sends[sender].setdefault(peer_of[reader], [])
                sent += [slot for slot in slots if slot not in sent]
        for route, own in zip(stages, sends):
            route.sends = list(own.items())
        return cls(peers, stages, list(sends[caller].items()), results)


_Edges = dict[tuple[int, int], list[str]]


def _chain(slots: Sequence[Mapping[str, Any]]) -> _Edges:
    """Each stage gets all values that it or a later one reads."""
    count = len(slots)
    edges, alive = {}, [slot for _, slot in slots[0]["inputs"]]
    for stage, own in enumerate(slots):
        edges[stage - 1 if stage else count, stage] = alive or [f"{TOKEN}{stage}"]
        alive = list(dict.fromkeys([*(slot for slot in alive if slot not in own["drops"]), *own["makes"]]))
    edges[count - 1, count] = alive or [f"{TOKEN}{count}"]
    return edges


def _branches(slots: Sequence[Mapping[str, Any]]) -> _Edges:
    """Each stage gets the values that it reads from the stages that make them, and the inputs from the caller."""
    caller, edges = len(slots), _Edges()
    maker = {slot: stage for stage, own in enumerate(slots) for slot in own["makes"]}
    given = [slot for _, slot in slots[0]["inputs"]]
    for stage, own in enumerate(slots):
        for slot in own["reads"]:
            edges.setdefault((maker.get(slot, caller), stage), []).append(slot)
    read = {slot for own in slots for slot in own["reads"]}
    results = {output["slot"] for output in slots[0]["outputs"] if "slot" in output}
    # The first stage verifies inputs that no stage reads, and passes on those that are results.
    for slot in given:
        if slot not in read or slot in results:
            first = edges.setdefault((caller, 0), [])
            first += [slot] if slot not in first else []
    for slot in sorted(results):
        edges.setdefault((maker.get(slot, 0), caller), []).append(slot)
    return edges


class Arrived:
    """What has arrived of one input."""

    def __init__(self) -> None:
        self.head: dict[str, Any] = {}
        # Arrays by slot; None if the caller did not give it, and the error of the stage that could not make it.
        self.values: dict[str, np.ndarray[Any, Any] | dict[str, Any] | None] = {}
        self.states: Packet = {}

    def add(self, head: Mapping[str, Any], packet: Packet) -> None:
        """Adds a message."""
        self.head = {name: value for name, value in head.items() if name not in ("slots", "error", "arrays")}
        self.states.update({name: value for name, value in packet.items() if name.startswith(STATE)})
        self.values.update({slot: head.get("error", packet.get(slot)) for slot in head["slots"]})

    def has(self, slots: Sequence[str]) -> bool:
        """Whether all these slots have arrived."""
        return all(slot in self.values for slot in slots)

    def error(self, slots: Sequence[str]) -> dict[str, Any] | None:
        """The error of the first stage that could not make one of these slots."""
        errors = [value for slot in slots if isinstance(value := self.values[slot], dict)]
        return min(errors, key=lambda error: error["stage"], default=None)

    def packet(self, slots: Sequence[str]) -> Packet:
        """The arrays of those of these slots that have one."""
        return {slot: value for slot in slots if isinstance(value := self.values.get(slot), np.ndarray)}


def message(
    about: Mapping[str, Any], slots: Sequence[str], packet: Packet, error: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], Packet]:
    """The message with these slots, of which `packet` has the arrays. If there is an `error`, it takes their place."""
    head = {**about, "slots": list(slots)}
    if error is not None:
        return {**head, "error": error}, {}
    tokens = {slot: np.empty(0, np.uint8) for slot in slots if slot.startswith(TOKEN)}
    return head, {slot: packet[slot] for slot in slots if slot in packet} | tokens
