"""Streams of samples through stages that run at the same time on different devices."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import numpy as np

from . import _arrays, _native, errors
from .errors import AnabranchError, InputError


class Pipeline:
    """A model as a pipeline, opened by `Session.pipeline`. As a context manager, it ends with its block.

        with session.pipeline({"x": first}) as pipeline:
            for outputs in pipeline.map({"x": frame} for frame in frames):
                ...
    """

    def __init__(
        self, pipeline: _native.Pipeline, declared: Mapping[str, tuple[str | None, str]], sequences: int
    ) -> None:
        self._pipeline = pipeline
        self._declared = declared
        self._sequences = sequences
        # Held by the open `map`; any thread may end it.
        self._mapping = threading.Lock()
        # Number of the first data set of the last `map`.
        self._first = 0
        # What ended the pipeline.
        self._failure: AnabranchError | None = None

    @property
    def plan(self) -> dict[str, Any]:
        """Mapping and prediction: ``stages`` with their devices and nodes, ``period`` and ``latency`` in seconds, ``held`` bytes per
        device, and all compared mappings (``candidates``)."""
        return dict(json.loads(self._pipeline.data())["plan"])

    @property
    def measured(self) -> dict[str, Any]:
        """Measurements until now, in seconds: number of samples (``data_sets``), ``period``, ``latency`` (p50, p95, p99), and each
        stage's devices."""
        return dict(json.loads(self._pipeline.data())["measured"])

    def map(self, inputs: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        """Yields the outputs for each of these inputs, in order. Several samples are in the pipeline at a time: inputs are read until it is
        full, then results come until half is left, then further inputs are read. Arrays are copied when
        they are taken from `inputs`, which is read only while the pipeline has capacity.

        If a sample fails, or `inputs` raises, the results of the samples before it come first, then the error. Errors name the sample
        by its number in this `map`, from 0.

        The state of a model with state begins from its first value with each `map`.

        Only one `map` runs at a time: the next can start when this one has ended, was closed, or is not referenced any more. Its
        remaining results are then awaited and dropped.

        Raises:
            InputError: If another `map` is open, or the inputs do not match the pipeline. The pipeline can still be used.
            AnabranchError: The failure of the first sample that fails. The pipeline has then ended.
        """
        if not self._mapping.acquire(blocking=False):
            raise InputError("another `map` of this pipeline is open; read all its results, or close it, before the next")
        try:
            # An exception of a signal's handler may have left some results.
            self._drop()
            if self._failure is not None:
                raise InputError(f"the pipeline ended when an earlier `map` failed: {self._failure}; open another")
            self._first = self._pipeline.pushed()
            most, samples, failure = self._pipeline.max_in_flight(), iter(inputs), None
            for number in itertools.count():
                if self._pipeline.under_way() == most:
                    # Full, each side would wait for the other before each sample.
                    while self._pipeline.under_way() > most // 2:
                        yield self._next()
                try:
                    self._push(next(samples), number)
                except StopIteration:
                    break
                except Exception as error:
                    failure = error
                    break
            # If a stage has failed, its error comes in its place among these, before that of a later sample.
            while self._pipeline.under_way():
                yield self._next()
            if failure is not None:
                raise failure
        finally:
            try:
                self._drop()
            finally:
                self._mapping.release()

    def _push(self, sample: Mapping[str, Any], number: int) -> None:
        """Pushes a sample with its number in this `map`."""
        if not isinstance(sample, Mapping):
            raise InputError(f"sample {number}: it is of type {type(sample).__name__}; give a dictionary of arrays by name")
        try:
            given = _arrays.given(sample, self._declared)
            _arrays.refuse_unknown(sample, self._declared)
        except AnabranchError as error:
            raise errors.of_sample(error, number) from None
        self._pipeline.push(given, number < self._sequences, self._first)

    def _next(self) -> dict[str, np.ndarray[Any, Any]]:
        try:
            finished = self._pipeline.next(self._first)
        except AnabranchError as error:
            self._failure = error
            raise
        if finished is None:
            raise InputError("the pipeline was closed; open another")
        return {name: _arrays.array(dtype, shape, memory) for name, dtype, shape, memory in finished}

    def _drop(self) -> None:
        """Drops the results that nobody will take."""
        try:
            while self._failure is None and self._pipeline.under_way() and self._pipeline.next(self._first) is not None:
                pass
        except AnabranchError as error:
            # The pipeline has ended with this error, which the next `map` reports.
            self._failure = error

    def close(self) -> None:
        """Ends the pipeline at once, and drops the samples in it."""
        self._pipeline.cancel()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
