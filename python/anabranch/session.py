"""Sessions: a model that is opened once and run any number of times."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _arrays, _native
from .errors import InputError
from .pipeline import Pipeline
from .views import Comparison, Devices, Plan, Profile, Refinement

Arrays = Mapping[str, Any]
"""Arrays by the names of inputs. Each is a NumPy array, anything with ``__dlpack__`` on the CPU (a torch tensor), or numbers in lists.
A sequence is a list of these, and an optional that holds nothing is None."""


@dataclass(frozen=True)
class Value:
    """An input or an output as the model declares it.

    Attributes:
        name: Its name.
        dtype: The type of its elements as NumPy (or ml_dtypes) calls it; None where the model does not declare it.
        shape: Sizes of the dimensions, outermost first: numbers, names of symbols, or None; None altogether where not even their
            number is declared.
        optional: Whether it may be left out, because the model holds a default.
        kind: ``tensor``, ``sequence`` (a list of arrays), ``optional`` (an array or None), or ``optional sequence`` (a list of arrays, or
            None). Type and shape are those of its arrays.
    """

    name: str
    dtype: str | None
    shape: tuple[int | str | None, ...] | None
    optional: bool
    kind: str = "tensor"

    @staticmethod
    def _of(entry: dict[str, Any]) -> Value:
        dtype, shape = entry["dtype"], entry["shape"]
        return Value(
            entry["name"],
            dtype and _arrays.dtype_name(dtype),
            None if shape is None else tuple(shape),
            entry["optional"],
            entry["kind"],
        )


def _options(**given: Any) -> str:
    """Options that were given, as the compiled part reads them."""
    given = {name: value for name, value in given.items() if value is not None}
    if "pin" in given:
        given["pin"] = list(given["pin"].items())
    return _arrays.dumps(given)


def devices(
    *,
    devices: Sequence[str] | None = None,
    cpu_devices: str | None = None,
    threads: int | None = None,
    gpu: bool | None = None,
    software_gpu: bool | None = None,
    memory: Mapping[str, int | str] | None = None,
) -> Devices:
    """The devices of this machine, with the options of `Session` that say which there are.

    Raises:
        InputError: If an option names a device that is not there.
    """
    return Devices(
        _native.devices(
            _options(
                devices=devices, cpu_devices=cpu_devices, threads=threads, gpu=gpu, software_gpu=software_gpu, memory=memory
            )
        )
    )


class Session:
    """A model on the devices of this machine.

    The first run with new input shapes places and plans the model for them; later runs with the same shapes only execute. Runs may be
    made from any number of threads, and follow each other, since each uses all the devices of its plan.

    Args:
        model: A path to an ONNX file or a compiled model, the bytes of an ONNX file, or an ``onnx.ModelProto``. Options that are not given
            are those with which a compiled model was compiled.
        place: Who decides where nodes run: a strategy (`anabranch.strategies`), a device's name, or a plan file that ends in ``.json``.
        order: Which of a device's ready nodes goes first: ``pct``, ``msr``, ``fifo`` or ``frugal``.
        devices: Names of the devices to use, or one name, at least one of them a CPU device; all if not given.
        cpu_devices: Cores that make one CPU device: ``machine``, ``package``, ``numa``, ``l3`` or ``core``.
        threads: Threads of each CPU device; one a core if not given. Results do not depend on it.
        gpu: Whether GPUs are looked for; yes if not given.
        software_gpu: Whether a software Vulkan adapter counts as a GPU; no if not given.
        memory: What devices may fill: bytes, or strings such as ``"2GiB"``, by device.
        emulate: How many times slower than they are CPU devices are to run, by device.
        costs: A cost store to predict with; the file need not exist. `save_costs` adds to it what was learned.
        calibrate: Whether devices of unknown speed are measured before the first placement, about a second each. Without it their
            rates are assumed, so that placements and predictions are guesses.
        stream: Which tensors are passed on in chunks: ``off``, ``auto`` or ``always``.
        chunk: Size of a chunk, such as ``"256KiB"`` or ``"7rows"``; from the caches' sizes if not given.
        weights: Which weights stay on GPUs between runs: ``resident``, ``staged`` or ``auto``.
        pin: Devices by patterns of nodes' names; of several that match, the first counts.
        colocate: Patterns; the nodes that match one share a device.
        dims: Sizes of dimensions that no input binds, by symbol (``"batch"``) or by input and axis (``"x[1]"``).
        limits: How much a model may ask for before it is refused, such as ``{"nodes": 2_000_000, "tensor_bytes": "128GiB"}``. Raise one if you
            trust a file that exceeds it.
        fuse: Whether neighbouring operators are fused into one node; yes if not given.
        platform: A platform file: `plan` then plans for its devices. Runs are always on those that are here.
        plan_capacity: For how many sets of input shapes plans are kept ready.
        cached: Positions that costs take caches of keys and values to hold; their capacity if not given.
        on_device_loss: What a run does that loses a GPU: ``fail``, or ``replace`` to be made again without it.
        plans: Former name of ``plan_capacity``.

    Raises:
        ModelError: If the file is no usable model.
        InputError, PlacementError: If an option makes no sense or names a device that is not there.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | Any,
        *,
        place: str | os.PathLike[str] | None = None,
        order: str | None = None,
        devices: Sequence[str] | None = None,
        cpu_devices: str | None = None,
        threads: int | None = None,
        gpu: bool | None = None,
        software_gpu: bool | None = None,
        memory: Mapping[str, int | str] | None = None,
        emulate: Mapping[str, float] | None = None,
        costs: str | os.PathLike[str] | None = None,
        calibrate: bool | None = None,
        stream: str | None = None,
        chunk: str | None = None,
        weights: str | None = None,
        pin: Mapping[str, str] | None = None,
        colocate: Iterable[str] | None = None,
        dims: Mapping[str, int] | None = None,
        limits: Mapping[str, int | str] | None = None,
        fuse: bool | None = None,
        platform: str | os.PathLike[str] | None = None,
        plan_capacity: int | None = None,
        cached: int | None = None,
        on_device_loss: str | None = None,
        plans: int | None = None,
    ) -> None:
        given = dict(locals())
        del given["self"], given["model"]
        options = _options(**given)
        if hasattr(model, "SerializeToString"):
            model = model.SerializeToString()
        if isinstance(model, (bytes, bytearray, memoryview)):
            self._session = _native.Session(None, bytes(model), options)
        else:
            self._session = _native.Session(os.fspath(model), None, options)
        self._costs = costs
        values = json.loads(self._session.values())
        self._inputs = tuple(map(Value._of, values["inputs"]))
        self._outputs = tuple(map(Value._of, values["outputs"]))
        self._labels = {entry["name"]: entry["labels"] for entry in values["outputs"]}
        self._kinds = {entry["name"]: entry["kind"] for entry in values["outputs"]}
        # Whether outputs are arrays: there are no sequences to put together, and no texts to look up.
        self._makes_arrays = set(self._kinds.values()) <= {"tensor"} and not any(self._labels.values())
        self._declared = {entry["name"]: (entry["dtype"], entry["kind"]) for entry in values["inputs"]}

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The model's inputs, in its order."""
        return self._inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The model's outputs, in its order."""
        return self._outputs

    @property
    def devices(self) -> Devices:
        """The devices that this session uses."""
        return Devices(self._session.devices())

    @property
    def held_bytes(self) -> dict[str, int]:
        """Bytes that the plans that are ready hold on each device; what they share counts once."""
        return dict(zip((device["name"] for device in self.devices), self._session.held_bytes(), strict=True))

    def run(self, inputs: Arrays, *, timeout: float | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """Runs the model.

        Arrays of more than 4 KiB that are contiguous and aligned to 8 bytes are read where they are: nobody may write them meanwhile.
        Others are copied once. Outputs are arrays over the memory that the run wrote. Other threads of Python's go on; a signal that
        raises, such as that of an interrupt, stops a run that the main thread has called.

        Args:
            inputs: Arrays by the names of inputs, in the types and shapes that the model declares (`inputs`). A sequence is a list of
                arrays, and an optional that holds nothing is None.
            timeout: Seconds that the run may take, with the time that it is queued and that for a plan.

        Returns:
            Arrays by the names of outputs, in the model's order; lists of arrays and None likewise.

        Raises:
            InputError: If an input is missing, or not as the model declares it.
            PlacementError, MemoryLimitError: If there is no plan for these shapes.
            Timeout: If it takes too long.
            DeviceError: If a kernel or a device fails.
        """
        return self._run(_arrays.given(inputs, self._declared), _native.CancelToken(), timeout)

    async def run_async(self, inputs: Arrays, *, timeout: float | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """`run` on a thread of the event loop's executor. Cancelling the task cancels the run, and waits for its end: arrays are not
        read any more then."""
        given, token = _arrays.given(inputs, self._declared), _native.CancelToken()
        running = asyncio.get_running_loop().run_in_executor(None, self._run, given, token, timeout)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            token.cancel()
            while not running.done():
                try:
                    await asyncio.wait([running])
                except asyncio.CancelledError:
                    # Cancelled once more. The arrays are still read until the run has ended.
                    pass
            # The run's error is the cancellation.
            running.exception()
            raise

    def _run(
        self, given: list[_arrays.Given], token: _native.CancelToken, timeout: float | None
    ) -> dict[str, np.ndarray[Any, Any]]:
        main = threading.current_thread() is threading.main_thread()
        taken = self._session.run(given, token, timeout, main)
        made = {name: _arrays.array(dtype, shape, memory) for name, dtype, shape, memory in taken}
        if self._makes_arrays:
            return made
        outputs = _arrays.assembled(made.items(), self._kinds)
        return {name: _arrays.labelled(array, self._labels.get(name)) for name, array in outputs.items()}

    def plan(self, inputs: Arrays | None = None) -> Plan:
        """The plan that runs with inputs of these shapes follow; inputs that are not given are as the model and ``dims`` declare them.

        Raises:
            InputError: If the shape of an input is not known.
            PlacementError, MemoryLimitError: If there is no plan.
        """
        return Plan(self._session.plan(_arrays.given(inputs, self._declared)))

    def profile(
        self,
        inputs: Arrays | None = None,
        *,
        repeat: int = 15,
        warmup: int = 1,
        learn: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> Profile:
        """Runs the model and tells what that took, and when what happened.

        Args:
            inputs: Arrays by the names of inputs; those that are not given are random.
            repeat: Measured runs. Three more follow that show when what happened; a single one is shown itself.
            warmup: Runs before, which do not count.
            learn: Whether what is measured of nodes and transfers goes into the costs of later plans.
            progress: Called with the number of runs that are done.
        """
        given = _arrays.given(inputs, self._declared)
        return Profile(self._session.profile(given, repeat, warmup, learn, progress))

    def compare(
        self,
        inputs: Arrays | None = None,
        *,
        places: Sequence[str] = ("auto", "heft", "mite", "cpu"),
        orders: Sequence[str] = ("pct",),
        streams: Sequence[str] = ("auto",),
        repeat: int = 15,
        warmup: int = 2,
        refine: int = 0,
        progress: Callable[[int], object] | None = None,
    ) -> Comparison:
        """Runs the model in several configurations in turn, and by a scheduler without a plan (``dynamic``).

        Args:
            inputs: As for `profile`.
            places: Strategies, devices or plan files. The first is the reference of all outputs.
            orders: With each of these orders of ready nodes.
            streams: With each of these: ``off``, ``auto``, ``always``.
            repeat: Measured runs of each configuration.
            warmup: Runs of each before, which do not count.
            refine: Rounds of running all configurations and learning from it before they are placed for the comparison.
            progress: Called with the number of runs that are done.
        """
        given = _arrays.given(inputs, self._declared)
        runs = (repeat, warmup, refine)
        return Comparison(*self._session.compare(given, list(places), list(orders), list(streams), runs, progress))

    def refine(
        self,
        inputs: Arrays | None = None,
        *,
        rounds: int = 3,
        repeat: int = 5,
        threshold: float = 0.02,
        progress: Callable[[int], object] | None = None,
    ) -> Refinement:
        """Runs, learns and places again, and keeps the plan that is measured to be fastest: of those placed and of each device on its
        own. Later runs with inputs of these shapes follow it.

        Args:
            inputs: As for `profile`.
            rounds: Rounds, at least 1.
            repeat: Measured runs of each plan in a round.
            threshold: A new plan is tried where it is predicted to be faster by more than this part.
            progress: Called with the number of runs that are done.
        """
        given = _arrays.given(inputs, self._declared)
        return Refinement(*self._session.refine(given, rounds, repeat, threshold, progress))

    def pipeline(
        self,
        inputs: Arrays | None = None,
        *,
        goal: str = "period",
        stages: str = "all",
        capacity: int = 2,
        measure: bool = True,
    ) -> Pipeline:
        """The model as a pipeline for a stream of data sets like this one: stages that work at the same time on different devices.

        Args:
            inputs: As for `plan`.
            goal: What is sought: the least ``period`` from result to result, or the least ``latency`` of each.
            stages: Which mappings are sought among: ``all``, ``together`` (all devices, one data set at a time), ``replicated`` (a whole
                copy on each core), ``data-parallel`` (all cores of a CPU device work at each data set together) or ``pipelined`` (stages on
                one device each).
            capacity: Data sets that may wait before each stage, for each of its devices.
            measure: Whether costs are measured first, which takes some ten runs of the model on one core.
        """
        given = _arrays.given(inputs, self._declared)
        return Pipeline(self._session.pipeline(given, goal, stages, capacity, measure), self._declared)

    def problem(self, inputs: Arrays | None = None) -> dict[str, Any]:
        """The problem of placing the model on this session's devices, for the placement simulator: ``anabranch.place(session.problem())``. Times
        are seconds, sizes bytes."""
        return dict(json.loads(self._session.problem(_arrays.given(inputs, self._declared))))

    def platform(self) -> dict[str, Any]:
        """The devices and links as a platform file holds them, to be edited, written as JSON and given as ``platform=``: in it ``times``
        multiplies a device's times. Times are seconds, sizes bytes."""
        return dict(json.loads(self._session.platform()))

    def calibrate(self) -> None:
        """Measures the devices whose rates are not known, and their links: about a second each. Plans that were made stay as they are."""
        self._session.calibrate()

    def save_costs(self, path: str | os.PathLike[str] | None = None) -> None:
        """Adds what this session has learned to a cost store: the one that it was opened with, if no other is named."""
        path = path or self._costs
        if path is None:
            raise InputError("name the cost store's file: this session was opened without one")
        self._session.save_costs(path)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(value.name for value in values) for values in (self.inputs, self.outputs))
        return f"<Session: {inputs} -> {outputs}>"
