"""Models and inputs as a pipeline takes them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import numpy as np

from .. import _arrays
from ..errors import AnabranchError, InputError
from ..session import Session
from . import platform as _platform
from ._channel import Packet


def source_of(model: Any, ship: bool) -> str | bytes:
    """The model as a path or as bytes."""
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    if isinstance(model, (bytearray, memoryview)):
        model = bytes(model)
    if isinstance(model, bytes):
        return model
    if not isinstance(model, (str, os.PathLike)):
        raise InputError(f"`model` is {type(model).__name__}; give the path or the bytes of an ONNX file, or an onnx.ModelProto")
    path = _platform.path_of("model", model)
    if not ship:
        return path
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise InputError(f"{path}: {error}") from error


class InThread:
    """The items of an asynchronous iterator, for another thread than that of its loop. `wake` is called when an item has come."""

    def __init__(self, inputs: AsyncIterator[Any], loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._inputs, self._loop, self._wake = inputs, loop, wake
        self._asked: concurrent.futures.Future[list[Any]] | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        """Ends the wait for an item. No more are asked for."""
        self._is_cancelled = True
        # The other thread may take it away meanwhile.
        if (asked := self._asked) is not None:
            asked.cancel()

    def has_next(self) -> bool:
        """Whether the next item, or the end, has come. Asks for it."""
        return self._request().done()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        items = self._request().result()
        self._asked = None
        if not items:
            raise StopIteration
        return items[0]

    def _request(self) -> concurrent.futures.Future[list[Any]]:
        if self._asked is None:
            self._asked = asyncio.run_coroutine_threadsafe(self._following(), self._loop)
            self._asked.add_done_callback(lambda asked: self._wake())
        return self._asked

    async def _following(self) -> list[Any]:
        if self._is_cancelled:
            return []
        try:
            return [await anext(self._inputs)]
        except StopAsyncIteration:
            return []


def packet_of(given: Mapping[str, Any], session: Session, opened: Mapping[str, Any], bound: Mapping[str, str]) -> Packet:
    """An input as the first stage takes it: arrays by the names of the model's inputs, in parts for sequences. They are copied, since
    they are needed again if a node fails."""
    if not isinstance(given, Mapping):
        raise InputError(f"each input must be a dictionary from names to arrays, not {type(given).__name__}")
    for name in given:
        if name in bound.values():
            raise InputError(f"input `{name}` is a state; give its first value when the pipeline is opened, in `inputs`")
    for value in session.inputs:
        if value.optional and value.name not in bound.values() and (value.name in given) != (value.name in opened):
            text = "was not given when the pipeline was opened" if value.name in given else "was given when the pipeline was opened, and is missing"
            raise InputError(f"input `{value.name}` {text}; give it both times, or never")
    _arrays.refuse_unknown(given, session._declared)
    parts = _arrays.given(given, session._declared)
    return {name: _arrays.array(dtype, list(shape), flat).copy() for name, dtype, shape, flat in parts}


def in_own_words(error: AnabranchError, packet: Packet, session: Session, opened: Mapping[str, Any], dims: Mapping[str, int]) -> AnabranchError:
    """The error of an input. If it has the type and shape that the pipeline was opened for, its elements are refused: the error then says
    what to do about them."""
    value = next((value for value in session.inputs if value.name == error.input), None)
    if value is None or value.shape is None or (array := packet.get(value.name)) is None or array.dtype.name != value.dtype:
        return error
    shape = np.shape(opened[value.name]) if value.name in opened else tuple(dims.get(str(size), size) for size in value.shape)
    if array.shape != shape:
        return error
    text = f"input `{value.name}` decides shapes or which nodes run; open the pipeline with `inputs=` that have these elements"
    made = InputError(text)
    made.kind, made.input = error.kind, error.input
    return made
