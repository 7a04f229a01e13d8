"""Connections over which data sets pass from process to process.

Two ways that Ray offers were measured and left: objects of 256 KiB and more between nodes took 15 ms in the median, but at times 10 s,
until a lost request was made again; and closing a Compiled Graph of several nodes ended the node's daemon (Ray 2.60). So data sets pass
over TCP connections of their own. Each end proves that it knows a key which only Ray's actors of this pipeline get; nothing is encrypted,
and nothing is executed: a message is a line of JSON and the bytes of arrays.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

import numpy as np

from .. import _arrays

_MOST_HEAD = 1 << 20
"""Bytes of the line before the arrays."""

Packet = dict[str, np.ndarray[Any, Any]]
"""Values of one data set, by name."""

Address = tuple[str, int]


class Wire:
    """One end of a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # Arrays pass by the socket itself, without copies between.
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    def to(cls, address: Address, key: bytes) -> Wire:
        """Connects to a process that listens.

        Raises:
            OSError, EOFError: If nothing listens there.
            multiprocessing.AuthenticationError: If it has another key.
        """
        return cls(Client(tuple(address), family="AF_INET", authkey=key))

    def send(self, head: dict[str, Any], packet: Packet) -> None:
        """Sends a data set.

        Raises:
            OSError: If the other end is gone.
        """
        given = _arrays.given(packet, {})
        head = {**head, "arrays": [[name, dtype, list(shape)] for name, dtype, shape, _ in given]}
        self._connection.send_bytes(json.dumps(head).encode())
        for *_, data in given:
            self._socket.sendall(memoryview(data))

    def receive(self) -> tuple[dict[str, Any], Packet]:
        """Waits for a data set. Arrays are new and writable.

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
        """Ends the connection."""
        self._socket.close()
        self._connection.close()


class Inbox:
    """Listens on the address of this node, and calls `take` with what comes, on a thread for each connection."""

    def __init__(self, host: str, key: bytes, take: Callable[[Wire, dict[str, Any], Packet], None]) -> None:
        self._listener, self._key = Listener((host, 0), family="AF_INET", backlog=64), key
        self._take, self._closed = take, False
        threading.Thread(target=self._accept, name="anabranch inbox", daemon=True).start()

    @property
    def address(self) -> Address:
        host, port = self._listener.address  # type: ignore[misc]
        return str(host), int(port)

    def close(self) -> None:
        """Takes no more connections."""
        self._closed = True
        try:
            # Closing alone would not wake the thread that accepts.
            socket.create_connection(self.address, timeout=1).close()
        except OSError:
            pass
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError:
                continue
            threading.Thread(target=self._read, args=(connection,), name="anabranch reader", daemon=True).start()

    def _read(self, connection: Connection) -> None:
        try:
            # Here, so that somebody who does not answer keeps nobody else from connecting.
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
        except (OSError, EOFError, AuthenticationError):
            connection.close()
            return
        wire = Wire(connection)
        try:
            while True:
                self._take(wire, *wire.receive())
        except (OSError, EOFError):
            # The other end has ended: whoever started it sees that.
            wire.close()
