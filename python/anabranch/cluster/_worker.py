"""Code that runs on the nodes of a cluster for flows: an actor that calls the functions of one worker and keeps their values."""

from __future__ import annotations

import os
import pickle
import traceback
from typing import Any

import numpy as np

from .. import _native
from ._channel import Address, Inbox, Packet, Wire
from ._host import own_address, ray_module, wire

_LINES = 12
"""Lines of a traceback that an error carries."""


def dumps(value: Any, name: str) -> Packet:
    """An object as arrays that begin with this name: the pickle, and the memory of the object's arrays without a copy."""
    buffers: list[pickle.PickleBuffer] = []
    head = ray_module().cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [head, *(buffer.raw() for buffer in buffers)]
    return {f"{name}.{at}": np.frombuffer(part, np.uint8) if len(part) else np.empty(0, np.uint8) for at, part in enumerate(parts)}


def loads(packet: Packet, name: str) -> Any:
    """The object that `dumps` has taken apart."""
    head, buffers, at = packet[f"{name}.0"], [], 1
    while (part := packet.get(f"{name}.{at}")) is not None:
        buffers.append(part)
        at += 1
    return pickle.loads(head.data, buffers=buffers)


class LostValue(Exception):
    """The process that holds an operand is gone."""


class WorkerHost:
    """Calls the functions of a flow for one worker, and keeps what they return until the driver releases it. Other workers of the flow
    fetch values here."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._functions: dict[int, Any] = {}
        self._values: dict[int, Any] = {}
        self._wires: dict[Address, Wire] = {}
        self._token = _native.CancelToken()
        self._does = {"begin": self._begin, "call": self._call, "fetch": self._fetch, "command": self._command, "cancel": self._cancel}
        self._inbox = Inbox(own_address(), key, self._take, lambda text: None)

    def address(self) -> Address:
        """Address for calls, and for other workers."""
        return self._inbox.address

    def process(self) -> int:
        """Number of this process, as the system knows it."""
        return os.getpid()

    def _take(self, wire: Wire, head: dict[str, Any], packet: Packet) -> None:
        wire.send(*self._does[head["do"]](head, packet))

    def _begin(self, head: dict[str, Any], packet: Packet) -> tuple[dict[str, Any], Packet]:
        """Forgets what an earlier run has left."""
        self._functions.clear()
        self._values.clear()
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()
        self._token = _native.CancelToken()
        return {}, {}

    def _call(self, head: dict[str, Any], packet: Packet) -> tuple[dict[str, Any], Packet]:
        for number in head["release"]:
            self._values.pop(number, None)
        fetched: list[int] = []
        try:
            if "function" in head:
                self._functions[head["function"]] = loads(packet, "function")
            operands = [self._operand(operand, packet, fetched, head["hang"]) for operand in head["operands"]]
            made = self._functions[head["node"]](*operands)
            taken = dumps(made, "value") if head["wanted"] else {}
        except LostValue as error:
            return {"lost": str(error)}, {}
        except BaseException as error:
            return self._raised(error)
        is_none = made is None and head["filter"]
        if not is_none:
            self._values[head["value"]] = made
        return {"none": is_none, "fetched": fetched}, taken

    def _operand(self, operand: dict[str, Any], packet: Packet, fetched: list[int], hang: float) -> Any:
        number = operand["value"]
        if number in self._values:
            return self._values[number]
        if "from" in operand:
            name, address = operand["from"]
            try:
                if (link := self._wires.get(tuple(address))) is None:
                    link = self._wires[tuple(address)] = wire(name, address, self._key)
                link.send({"do": "fetch", "value": number}, {})
                if not link.has_arrived(hang):
                    raise EOFError(f"it does not answer for {hang:g} s")
                head, given = link.receive()
            except Exception as error:
                raise LostValue(f"{name} is gone: {error or type(error).__name__}") from None
            if "type" in head:
                # It cannot be sent.
                raise loads(given, "error") if given else RuntimeError(head["text"])
            fetched.append(sum(part.nbytes for part in given.values()))
            self._values[number] = loads(given, "value")
        else:
            self._values[number] = loads(packet, f"value{number}")
        return self._values[number]

    def _raised(self, error: BaseException) -> tuple[dict[str, Any], Packet]:
        """An error as data. If it cannot be made again from a pickle, its text remains."""
        lines = traceback.format_exception(error)[-_LINES:]
        head = {"type": type(error).__name__, "text": f"{type(error).__name__}: {error}", "trace": "".join(lines)}
        try:
            packet = dumps(error, "error")
            loads(packet, "error")
        except Exception:
            packet = {}
        return head, packet

    def _fetch(self, head: dict[str, Any], packet: Packet) -> tuple[dict[str, Any], Packet]:
        try:
            return {}, dumps(self._values[head["value"]], "value")
        except Exception as error:
            return self._raised(error)

    def _command(self, head: dict[str, Any], packet: Packet) -> tuple[dict[str, Any], Packet]:
        if not os.path.isdir(head["directory"]):
            return {"failed": f"there is no directory {head['directory']} on this node; use one that all nodes share"}, {}
        return {"failed": _native.run_command(head["command"], head["directory"], head["id"], self._token)}, {}

    def _cancel(self, head: dict[str, Any], packet: Packet) -> tuple[dict[str, Any], Packet]:
        self._token.cancel()
        return {}, {}
