"""A run of a flow in which the processes of a cluster call the functions."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import _native
from ..errors import DeviceError, InputError
from ._channel import Packet
from ._worker import dumps, loads

if TYPE_CHECKING:
    from ..flow import Node
    from .workers import Link


class FlowRun:
    """A run of a flow by the processes of these links, one per worker. Nodes of the flow read and return `_Value`: where a value is."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links
        self._numbers = itertools.count()
        # Values that are not needed any more, by worker. A worker is told with its next call: until then it makes nothing new.
        self._garbage: list[deque[int]] = [deque() for _ in self._links]
        self._learnt: list[set[int]] = [set() for _ in self._links]
        self._counted = threading.Lock()
        self.sent = {"messages": 0, "bytes": 0, "outside_messages": 0, "outside_bytes": 0}

    def given(self, value: Any) -> _Value:
        """A value that is in this process."""
        return _Value(self, None, next(self._numbers), [value])

    def remote(self, node: Node, wanted: bool) -> Callable[..., Any]:
        """A function that calls the function of a node in the process of the worker that calls it. `wanted`: whether the caller of the
        run needs its values."""
        try:
            packet = dumps(node._does, "function")
        except Exception as error:
            raise InputError(f"node {node.name!r}: its function cannot be sent to other processes: {error}") from None
        head = {"do": "call", "node": node._number, "wanted": wanted, "filter": node._kind == "filter"}
        return lambda *operands: self._call(node.name, head, packet, operands)

    def local(self, function: Any) -> Callable[..., Any]:
        """A function that is called in this process."""
        return lambda *operands: self.given(function(*(operand.value() for operand in operands)))

    def items(self, items: Iterator[Any]) -> Iterator[Any]:
        """The items of a source."""
        return map(self.given, items)

    def _call(self, name: str, about: dict[str, Any], function: Packet, operands: tuple[_Value, ...]) -> _Value | None:
        worker = _native.flow_worker()
        assert worker is not None
        link, garbage, number = self._links[worker], self._garbage[worker], next(self._numbers)
        packet: Packet = {}
        head = {**about, "value": number, "release": [garbage.popleft() for _ in range(len(garbage))], "hang": link.hang}
        if about["node"] not in self._learnt[worker]:
            head["function"] = about["node"]
            packet.update(function)
        try:
            head["operands"] = asked = [operand.sent_to(worker, packet) for operand in operands]
        except Exception as error:
            raise InputError(f"node {name!r}: an operand cannot be sent to {link.name}: {error}") from None
        given = sum(part.nbytes for part in packet.values())
        try:
            answer, made = link.ask(head, packet)
            if "lost" in answer:
                raise DeviceError(f"{answer['lost']}, and with it an operand of {link.name}; run again, on the nodes that are left")
        except DeviceError as error:
            error.node, error.device = name, link.name
            raise
        if "type" in answer:
            raise _raised(answer, made, link)
        self._learnt[worker].add(about["node"])
        for operand in operands:
            operand.holders.add(worker)
        self._count(link, asked, answer["fetched"], given, made)
        if answer["none"]:
            return None
        return _Value(self, worker, number, [loads(made, "value")] if about["wanted"] else [])

    def _count(self, link: Link, asked: list[dict[str, Any]], fetched: list[int], given: int, made: Packet) -> None:
        nodes = {other.name: other.node for other in self._links}
        homes = [nodes[operand["from"][0]] for operand in asked if "from" in operand]
        apart = [size for home, size in zip(homes, fetched) if home != link.node]
        with self._counted:
            self.sent["messages"] += len(apart)
            self.sent["bytes"] += sum(apart)
            self.sent["outside_messages"] += (given > 0) + bool(made)
            self.sent["outside_bytes"] += given + sum(part.nbytes for part in made.values())

    def link(self, worker: int) -> Link:
        """The connection to a worker."""
        return self._links[worker]

    def release(self, worker: int, number: int) -> None:
        """Notes that a value in the process of a worker is not needed any more."""
        self._garbage[worker].append(number)


class _Value:
    """An operand: in the process of a worker (`home`), in this process (`here`), or in both."""

    __slots__ = ("_run", "home", "number", "here", "holders", "__weakref__")

    def __init__(self, run: FlowRun, home: int | None, number: int, here: list[Any]) -> None:
        self._run, self.home, self.number, self.here = run, home, number, here
        self.holders = set() if home is None else {home}

    def value(self) -> Any:
        """The object in this process."""
        return self.here[0]

    def sent_to(self, worker: int, packet: Packet) -> dict[str, Any]:
        """How a worker gets the value. What goes with the request is added to `packet`."""
        if worker in self.holders:
            return {"value": self.number}
        if self.home is not None:
            home = self._run.link(self.home)
            return {"value": self.number, "from": [home.name, home.address]}
        packet.update(dumps(self.here[0], f"value{self.number}"))
        return {"value": self.number}

    def __del__(self) -> None:
        for holder in self.holders:
            self._run.release(holder, self.number)


def _raised(answer: dict[str, Any], made: Packet, link: Link) -> BaseException:
    """The exception of a function, with a note of its process."""
    try:
        error = loads(made, "error") if made else RuntimeError(answer["text"])
    except Exception:
        error = RuntimeError(answer["text"])
    error.add_note(f"on {link.name} of the cluster:\n{answer['trace'].rstrip()}")
    return error
