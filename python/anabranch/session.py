"""Sessions: models that are opened once and run any number of times."""

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
A sequence is a list of these, and an optional that holds nothing is None. Numbers in lists become elements of the declared type: floats
are rounded to floats, and numbers that the type does not have are refused. Arrays are never converted."""


@dataclass(frozen=True)
class Value:
    """An input or output as the model declares it.

    Attributes:
        name: Name of the value.
        dtype: NumPy (or ml_dtypes) name of the element type; None if the model does not declare it.
        shape: Sizes of the dimensions, outermost first: numbers, names of symbols, or None. It is None if the number of dimensions is
            not declared.
        optional: Whether it may be left out, because the model has a default.
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
    gpu_backend: str | None = None,
    memory: Mapping[str, int | str] | None = None,
) -> Devices:
    """Returns the devices of this machine. The options are those of `Session` that select devices.

    Raises:
        InputError: If an option names a device that does not exist.
    """
    return Devices(
        _native.devices(
            _options(
                devices=devices,
                cpu_devices=cpu_devices,
                threads=threads,
                gpu=gpu,
                software_gpu=software_gpu,
                gpu_backend=gpu_backend,
                memory=memory,
            )
        )
    )


class Session:
    """A model on the devices of this machine.

    The first run with new input shapes places and plans the model for them; later runs with the same shapes only execute. Any number of
    threads may call a session. Their runs follow each other, because each uses all the devices of its plan.

    Args:
        model: Path of an ONNX file or of a compiled model, the bytes of an ONNX file, or an ``onnx.ModelProto``. A compiled model brings its
            own values for options that are not given.
        place: Placement of the nodes: a strategy (`anabranch.strategies`), the name of a device, or a plan file that ends in ``.json``.
        order: Order of a device's ready nodes: ``pct``, ``msr``, ``fifo`` or ``frugal``.
        devices: Names of the devices to use, or one name. One of them must be a CPU device. The default is all devices.
        cpu_devices: Cores of one CPU device: ``machine``, ``package``, ``numa``, ``l3`` or ``core``.
        threads: Threads of each CPU device. The default is one per core. More than the device has processing units are not used, and
            ``devices.notes`` says so. Results do not depend on it.
        gpu: Whether to use GPUs. The default is yes.
        software_gpu: Whether a software adapter counts as a GPU. The default is no.
        gpu_backend: Graphics interface through which GPUs are found: ``vulkan``, ``metal``, ``dx12`` or ``gl``. The default is all of the
            system except ``gl``.
        memory: Memory limits by device: bytes, or strings such as ``"2GiB"``.
        emulate: Factors by which CPU devices are slowed down, by device.
        costs: Cost store for predictions; the file need not exist. `save_costs` adds the learned costs to it.
        calibrate: Whether devices of unknown speed are measured before the first placement, about a second each. If not, their rates
            are assumed, and placements and predictions are guesses.
        stream: Tensors that are streamed in chunks: ``off``, ``auto`` or ``always``.
        chunk: Size of a chunk, such as ``"256KiB"`` or ``"7rows"``. The default depends on the sizes of caches.
        weights: Weights that stay on GPUs between runs: ``resident``, ``staged`` or ``auto``.
        pinned: Whether GPUs copy from and to memory of the host by themselves, if they can. The default is yes. Results do not depend on
            it.
        pin: Devices by patterns of node names. If several patterns match, the first counts.
        colocate: Patterns of node names. All nodes that match a pattern share a device.
        split: Division of the rows of a batch among devices: ``"batch=auto"``, or ``"batch=gpu0:28,cpu0:4"``. The left side is a symbol of
            the model, or an input and an axis (``"x[0]"``).
        dims: Sizes of dimensions that no input binds, by symbol (``"batch"``) or by input and axis (``"x[1]"``).
        limits: Limits on the size of a model, such as ``{"nodes": 2_000_000, "tensor_bytes": "128GiB"}``. Raise a limit if you trust a
            file that exceeds it.
        fuse: Whether neighbouring operators are fused into one node. The default is yes.
        precision: Arithmetic of matrix products on GPUs with matrix units: ``f32``, ``f16x3`` or ``f16``. The default is ``f32``.
        platform: Platform file: `plan` then plans for its devices. Runs always use the devices of this machine.
        plan_capacity: Number of sets of input shapes whose plans are kept.
        cached: Assumed number of positions in key-value caches, for predictions. The default is their capacity.
        on_device_loss: Action of a run that loses a GPU: ``fail``, or ``replace`` to run again without it.
        plans: Former name of ``plan_capacity``.

    Raises:
        ModelError: If the file is not a usable model.
        InputError, PlacementError: If an option is invalid or names a device that does not exist.
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
        gpu_backend: str | None = None,
        memory: Mapping[str, int | str] | None = None,
        emulate: Mapping[str, float] | None = None,
        costs: str | os.PathLike[str] | None = None,
        calibrate: bool | None = None,
        stream: str | None = None,
        chunk: str | None = None,
        weights: str | None = None,
        pinned: bool | None = None,
        pin: Mapping[str, str] | None = None,
        colocate: Iterable[str] | None = None,
        split: str | None = None,
        dims: Mapping[str, int] | None = None,
        limits: Mapping[str, int | str] | None = None,
        fuse: bool | None = None,
        precision: str | None = None,
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
        """Bytes that the kept plans hold on each device. Shared bytes count once."""
        return dict(zip((device["name"] for device in self.devices), self._session.held_bytes(), strict=True))

    def run(self, inputs: Arrays, *, timeout: float | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """Runs the model.

        Arrays of more than 4 KiB that are contiguous and aligned to 8 bytes are read in place: do not write to them during the run.
        Other arrays are copied once. Outputs are arrays over the memory that the run wrote. Other Python threads continue. A signal
        that raises an exception, such as Ctrl-C, stops a run of the main thread.

        Args:
            inputs: Arrays by the names of inputs, in the types and shapes that the model declares (`inputs`). A sequence is a list of
                arrays, and an empty optional is None.
            timeout: Limit in seconds, including the time in the queue and the time for a plan.

        Returns:
            Arrays by the names of outputs, in the model's order. Sequences are lists of arrays, and empty optionals are None.

        Raises:
            InputError: If an input is missing, or does not match the model's declaration.
            PlacementError, MemoryLimitError: If there is no plan for these shapes.
            Timeout: If it exceeds the limit.
            DeviceError: If a kernel or a device fails.
        """
        return self._run(_arrays.given(inputs, self._declared), _native.CancelToken(), timeout)

    async def run_async(self, inputs: Arrays, *, timeout: float | None = None) -> dict[str, np.ndarray[Any, Any]]:
        """Calls `run` on a thread of the event loop's executor. Cancelling the task cancels the run and waits for its end; arrays are
        not read after that."""
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
        taken = self._session.run(given, token, _arrays.seconds("timeout", timeout), main)
        made = {name: _arrays.array(dtype, shape, memory) for name, dtype, shape, memory in taken}
        if self._makes_arrays:
            return made
        outputs = _arrays.assembled(made.items(), self._kinds)
        return {name: _arrays.labelled(array, self._labels.get(name)) for name, array in outputs.items()}

    def plan(self, inputs: Arrays | None = None) -> Plan:
        """Returns the plan for runs with inputs of these shapes. Missing inputs have the shapes that the model and ``dims`` declare.

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
        """Runs the model, and returns its times and the events of one run.

        Args:
            inputs: Arrays by the names of inputs. Missing inputs are random.
            repeat: Number of measured runs. Three more runs record events; a single run records its own.
            warmup: Runs before, which do not count.
            learn: Whether later plans use the measured times of nodes and transfers.
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
        """Runs the model in several configurations in turn, and with a scheduler without a plan (``dynamic``).

        Args:
            inputs: As for `profile`.
            places: Strategies, devices or plan files. The first is the reference of all outputs.
            orders: Orders of ready nodes to compare.
            streams: Modes of streaming to compare: ``off``, ``auto``, ``always``.
            repeat: Measured runs of each configuration.
            warmup: Runs of each configuration before the measured runs.
            refine: Rounds of running all configurations and learning from them, before the comparison.
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
        """Runs, learns and places again, and keeps the plan with the shortest measured time, among the new plans and each device alone.
        Later runs with inputs of these shapes use it.

        Args:
            inputs: As for `profile`.
            rounds: Rounds, at least 1.
            repeat: Measured runs of each plan in a round.
            threshold: A new plan is tried if it is predicted to be faster by more than this fraction.
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
        feed: Mapping[str, str] | None = None,
        sequences: int = 1,
    ) -> Pipeline:
        """Opens the model as a pipeline for a stream of samples with these shapes: stages run at the same time on different devices.

        Args:
            inputs: As for `plan`.
            goal: Time to minimise: the ``period`` from result to result, or the ``latency`` of each sample.
            stages: Mappings to choose from: ``all``, ``together`` (all devices, one sample at a time), ``replicated`` (a whole copy on
                each core), ``data-parallel`` (all cores of a CPU device share each sample) or ``pipelined`` (stages on one device
                each).
            capacity: Samples that may wait before each stage, per device of the stage.
            measure: Whether costs are measured first, which takes about ten runs of the model on one core.
            feed: Outputs of a sample that are inputs of the next, such as ``{"present.*": "past.*"}``. The stage that reads such a
                state keeps it. It begins as `inputs` gives it, and is neither an input nor an output of `Pipeline.map`.
            sequences: Number of sequences to which samples belong in turn, each with a state of its own.
        """
        given = _arrays.given(inputs, self._declared)
        state = _arrays.state(feed, sequences)
        pipeline = self._session.pipeline(given, (goal, stages), (capacity, measure), state)
        return Pipeline(pipeline, self._declared, sequences)

    def problem(self, inputs: Arrays | None = None) -> dict[str, Any]:
        """Returns the placement problem of the model on this session's devices, for the placement simulator:
        ``anabranch.place(session.problem())``. Times are in seconds, sizes in bytes."""
        return dict(json.loads(self._session.problem(_arrays.given(inputs, self._declared))))

    def platform(self) -> dict[str, Any]:
        """Returns the devices and links in the form of a platform file. Edit it, write it as JSON, and pass it as ``platform=``.
        ``times`` multiplies a device's times. Times are in seconds, sizes in bytes."""
        return dict(json.loads(self._session.platform()))

    def calibrate(self) -> None:
        """Measures devices of unknown speed and their links, about a second each. Existing plans stay the same."""
        self._session.calibrate()

    def save_costs(self, path: str | os.PathLike[str] | None = None) -> None:
        """Adds the costs that this session has learned to a cost store. The default is the store that it was opened with."""
        path = path or self._costs
        if path is None:
            raise InputError("this session was opened without a cost store; name the file")
        self._session.save_costs(path)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(value.name for value in values) for values in (self.inputs, self.outputs))
        return f"<Session: {inputs} -> {outputs}>"
