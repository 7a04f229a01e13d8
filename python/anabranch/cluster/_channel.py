"""Connections over which the values of an input pass from process to process.

Two ways that Ray offers were measured and left: objects of 256 KiB and more between nodes took 15 ms in the median, but at times 10 s,
until a lost request was made again; and closing a Compiled Graph of several nodes ended the node's daemon (Ray 2.60). So inputs pass over
TCP connections of their own. Both ends prove that they know the key of the pipeline, which Ray carries to its actors. Nothing is encrypted,
and nothing is executed here: a message is a line of JSON and the bytes of arrays. Flows put pickles into such arrays (`_worker`).
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

import numpy as np

from .. import _arrays
from ..errors import InputError

_MOST_HEAD = 16 << 20
"""Bytes of the line before the arrays."""

Packet = dict[str, np.ndarray[Any, Any]]
"""Values of one input of a stream, by name."""
_HANDSHAKE, _GONE = 10, 30
"""Seconds for the exchange of keys, and seconds after which a connection without an answer counts as broken."""

Address = tuple[str, int]


class Wire:
    """One end of a connection whose ends know each other's key.

    Raises:
        OSError, EOFError: If the other end is gone or does not answer.
        multiprocessing.AuthenticationError: If it has another key.
    """

    def __init__(self, own: socket.socket, key: bytes, is_server: bool) -> None:
        self._socket = own
        self._connection: Any = None
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", _GONE // 2), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", _GONE * 1000)):
            own.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        own.setblocking(True)
        self._limit_waiting(_HANDSHAKE)
        # A second descriptor of the same socket: arrays pass by the socket itself, without copies between.
        self._connection = Connection(os.dup(own.fileno()))
        try:
            for step in (deliver_challenge, answer_challenge) if is_server else (answer_challenge, deliver_challenge):
                step(self._connection, key)
        except BaseException:
            self.close()
            raise
        self._limit_waiting(0)

    @classmethod
    def to(cls, address: Address, key: bytes) -> Wire:
        """Connects to a process that listens."""
        return cls(socket.create_connection(tuple(address), timeout=_HANDSHAKE), key, is_server=False)

    def _limit_waiting(self, seconds: int) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))

    def has_arrived(self, seconds: float) -> bool:
        """Waits until there is something to receive, for at most so long. The end of the other end counts, too."""
        return bool(self._connection.poll(seconds))

    def send(self, head: dict[str, Any], packet: Packet) -> None:
        """Sends values.

        Raises:
            OSError: If the other end is gone.
            InputError: If there are too many values.
        """
        given = _arrays.given(packet, {})
        head = {**head, "arrays": [[name, dtype, list(shape)] for name, dtype, shape, _ in given]}
        line = json.dumps(head).encode()
        if len(line) > _MOST_HEAD:
            raise InputError(f"{len(given)} values are too many to pass between processes; give fewer")
        self._connection.send_bytes(line)
        for *_, data in given:
            self._socket.sendall(memoryview(data))

    def receive(self) -> tuple[dict[str, Any], Packet]:
        """Waits for values. Arrays are new and writable.

        Raises:
            OSError, EOFError: If the other end is gone.
        """
        head = json.loads(self._connection.recv_bytes(_MOST_HEAD))
        packet = {}
        for name, dtype, shape in head["arrays"]:
            packet[name] = array = np.empty(shape, _arrays.numpy_dtype(dtype))
            left = memoryview(array.reshape(-1).view(np.uint8))
            while left:
                if not (got := self._socket.recv_into(left)):
                    raise EOFError
                left = left[got:]
        return head, packet

    def close(self) -> None:
        """Ends the connection, also for a thread that waits for it. Any thread may do so."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The other end has ended it.
            pass

    def __del__(self) -> None:
        # Not in `close`: another thread may be about to read, and the system gives the number of a closed descriptor to the next file.
        self._socket.close()
        if self._connection is not None:
            self._connection.close()


class Inbox:
    """Listens on the address of this node, and calls `take` with what it receives, on a thread for each connection. `failed` is called with
    the error of a thread that cannot go on, but not if the other end has closed the connection."""

    def __init__(
        self, host: str, key: bytes, take: Callable[[Wire, dict[str, Any], Packet], None], failed: Callable[[str], None]
    ) -> None:
        self._listener = socket.create_server((host, 0), backlog=64)
        self._key, self._take, self._failed = key, take, failed
        self._wires: list[Wire] = []
        threading.Thread(target=self._accept, name="anabranch inbox", daemon=True).start()

    @property
    def address(self) -> Address:
        host, port = self._listener.getsockname()
        return str(host), int(port)

    def close(self) -> None:
        """Takes no more connections, and ends those that are there."""
        try:
            # Closing alone would not wake the thread that accepts.
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()
        for wire in list(self._wires):
            wire.close()

    def _accept(self) -> None:
        while True:
            try:
                own, _ = self._listener.accept()
            except OSError as error:
                if self._listener.fileno() >= 0:
                    self._failed(f"no more connections can be taken: {error}")
                return
            # The keys are exchanged there, so that somebody who does not answer keeps nobody else from connecting.
            threading.Thread(target=self._read, args=(own,), name="anabranch reader", daemon=True).start()

    def _read(self, own: socket.socket) -> None:
        try:
            wire = Wire(own, self._key, is_server=True)
        except (OSError, EOFError, AuthenticationError):
            # Somebody without the key.
            return
        self._wires.append(wire)
        try:
            while True:
                self._take(wire, *wire.receive())
        except (OSError, EOFError):
            # The other end has ended. If it should not have, Ray tells so.
            pass
        except Exception as error:
            self._failed(f"values cannot be received: {error or type(error).__name__}")
        finally:
            self._wires.remove(wire)
            wire.close()
