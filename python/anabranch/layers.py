"""Comparison with ONNX Runtime, layer by layer: the first node whose outputs differ, and by how much.

    python -m anabranch.layers model.onnx --input x=x.npy
    python -m anabranch.layers model.onnx --dim batch=2 --json

Needs the packages ``onnx`` and ``onnxruntime``. Both runtimes compute the model with the outputs of every node as outputs of the model.
ONNX Runtime runs without its optimisations. Anabranch fuses less than usual, because nothing is fused across an output; so the model
is also compared as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import AnabranchError
from .session import Session

if TYPE_CHECKING:
    import onnx

#: Most bytes of outputs in one run. A model with more is run several times.
MOST_BYTES = 1 << 30

#: Assumed elements of an output whose shape is not known.
UNKNOWN = 1 << 18


class ReferenceFailure(Exception):
    """ONNX Runtime cannot run the model."""


@dataclass(frozen=True)
class Layer:
    """The difference of one output of a node."""

    #: Name of the node, or the number of its position.
    node: str
    #: Type of the operator.
    operator: str
    #: Name of the output.
    output: str
    #: Shape of the output, as Anabranch computes it.
    shape: tuple[int, ...]
    #: Greatest absolute difference; infinite for another shape, type or place of values that are not finite.
    absolute: float
    #: Greatest difference by the expected magnitude.
    relative: float
    #: Share of the elements that differ by more than ``atol + rtol * |expected|``.
    share: float

    @property
    def differs(self) -> bool:
        """Whether any element differs by more than is allowed."""
        return self.share > 0


@dataclass(frozen=True)
class Layers:
    """The differences of all nodes, in the model's order, and of the model as it is."""

    #: One entry for each output of a node that is a tensor of numbers.
    layers: tuple[Layer, ...]
    #: The outputs of the model as it is, with all fusions.
    whole: tuple[Layer, ...]
    #: Outputs of nodes that were not compared: their type is unknown before the run, or they are no tensors of numbers.
    skipped: tuple[str, ...] = ()

    @property
    def first(self) -> Layer | None:
        """The first output that differs."""
        return next((layer for layer in self.layers if layer.differs), None)

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return not any(layer.differs for layer in (*self.layers, *self.whole))

    def __str__(self) -> str:
        shown = [layer for layer in self.layers if layer.differs] or sorted(self.layers, key=lambda layer: -layer.relative)[:5]
        head = ("node", "operator", "output", "shape", "absolute", "relative", "differ")
        rows = [
            (a.node, a.operator, a.output, "×".join(map(str, a.shape)), f"{a.absolute:.3g}", f"{a.relative:.3g}", f"{100 * a.share:.2f} %")
            for a in shown[:20]
        ]
        widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)]
        if self.first is not None:
            count = sum(layer.differs for layer in self.layers)
            lines += ["", f"{count} of {len(self.layers)} outputs of nodes differ, the first is {self.first.output!r} of node {self.first.node!r}"]
        elif self.agrees:
            lines += ["", f"all {len(self.layers)} outputs of nodes agree, and so does the model as it is; shown are the largest differences"]
        else:
            wrong = next(layer.output for layer in self.whole if layer.differs)
            lines += ["", f"all outputs of nodes agree, but {wrong!r} of the model as it is differs: look at fusions (`--no-fuse` of the command)"]
        if self.skipped:
            lines.append(f"not compared: {len(self.skipped)} outputs of unknown or other types, the first is {self.skipped[0]!r}")
        return "\n".join(lines)


def compare(
    model: str | Path | onnx.ModelProto,
    inputs: Mapping[str, Any],
    *,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    **options: Any,
) -> Layers:
    """Compares each node's outputs with those of ONNX Runtime on the CPU.

    Args:
        model: Path of an ONNX file, or a model.
        inputs: Arrays by the names of inputs.
        rtol: Allowed difference by the expected magnitude.
        atol: Allowed absolute difference in addition.
        options: Options of `anabranch.Session`, such as ``gpu=False``.

    Raises:
        AnabranchError: If Anabranch cannot open or run the model.
        ReferenceFailure: If ONNX Runtime cannot open or run it.
        ImportError: If ``onnx`` or ``onnxruntime`` is missing.
    """
    import onnx

    is_file = isinstance(model, (str, Path))
    proto = onnx.load(model) if is_file else onnx.ModelProto.FromString(model.SerializeToString())
    nodes = {output: (at, node) for at, node in enumerate(proto.graph.node) for output in node.output if output}
    declared = [value.name for value in proto.graph.output]
    given = dict(inputs)
    known = _known(proto, given)
    numeric = [name for name in nodes if name in known and known[name].HasField("tensor_type")]
    compared: set[str] = set()

    def layers(names: Sequence[str]) -> list[Layer]:
        ours, theirs = _both(_with_outputs(proto, names, known), names, given, options)
        made = zip(names, ours, theirs, strict=True)
        numbers = [(name, *arrays) for name, *arrays in made if _is_numbers(arrays[1])]
        compared.update(name for name, *_ in numbers)
        return [_layer(name, nodes.get(name), *arrays, rtol, atol) for name, *arrays in numbers]

    found = [layer for names in _groups(numeric, known) for layer in layers(names)]
    whole = layers([name for name in declared if name in nodes])
    return Layers(tuple(found), tuple(whole), tuple(name for name in nodes if name not in compared))


def _known(proto: onnx.ModelProto, inputs: Mapping[str, Any]) -> dict[str, onnx.TypeProto]:
    """Returns the types of values that shape inference finds for these inputs."""
    import onnx

    bound = onnx.ModelProto()
    bound.CopyFrom(proto)
    for value in bound.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = np.shape(inputs.get(value.name, ()))
        if len(shape) == len(dims):
            for dim, size in zip(dims, shape, strict=True):
                dim.dim_value = size
    try:
        inferred = onnx.shape_inference.infer_shapes(bound, data_prop=True) if bound.ByteSize() < 1 << 31 else bound
    except onnx.shape_inference.InferenceError:
        # An operator of a domain that `onnx` does not know. Types that the model declares are left.
        inferred = bound
    values = (*inferred.graph.value_info, *inferred.graph.output)
    return {value.name: value.type for value in values if value.HasField("type")}


def _groups(names: Sequence[str], known: Mapping[str, onnx.TypeProto]) -> list[list[str]]:
    """Returns groups of outputs, each of at most `MOST_BYTES` as far as shapes are known."""
    groups, held = [[]], 0
    for name in names:
        shape = known[name].tensor_type.shape.dim
        sizes = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in shape]
        size = 8 * max(int(np.prod(sizes, dtype=np.float64)), 1 if all(sizes) else UNKNOWN)
        if held + size > MOST_BYTES and groups[-1]:
            groups.append([])
            held = 0
        groups[-1].append(name)
        held += size
    return [group for group in groups if group]


def _with_outputs(proto: onnx.ModelProto, names: Sequence[str], known: Mapping[str, onnx.TypeProto]) -> onnx.ModelProto:
    """Returns the model with these outputs."""
    import onnx

    other = onnx.ModelProto()
    other.CopyFrom(proto)
    declared = {value.name: value for value in proto.graph.output}
    del other.graph.output[:]
    for name in names:
        value = other.graph.output.add()
        if name in declared:
            value.CopyFrom(declared[name])
        else:
            # Inferred shapes may contradict what runs; the type is enough.
            value.name = name
            value.type.tensor_type.elem_type = known[name].tensor_type.elem_type
    return other


def _both(proto: onnx.ModelProto, names: Sequence[str], inputs: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs of both runtimes."""
    import onnx
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(proto, path, save_as_external_data=proto.ByteSize() >= 1 << 30, location="weights")
        try:
            theirs = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"]).run(list(names), dict(inputs))
        except Exception as error:  # Its exceptions have no base of their own.
            raise ReferenceFailure(f"ONNX Runtime cannot run it: {error}") from error
        ours = Session(path, **options).run(inputs)
        return [np.array(ours[name]) if isinstance(ours[name], np.ndarray) else ours[name] for name in names], theirs


def _is_numbers(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "biufV"


def _layer(name: str, made: tuple[int, onnx.NodeProto] | None, ours: Any, theirs: Any, rtol: float, atol: float) -> Layer:
    label = (made[1].name or f"number {made[0]}", made[1].op_type) if made else ("", "")
    label = (*label, name, tuple(np.shape(ours)))
    if np.shape(ours) != np.shape(theirs) or not _is_numbers(ours) or ours.dtype != theirs.dtype:
        return Layer(*label, float("inf"), float("inf"), 1.0)
    if theirs.dtype.kind in "biu":
        found, wanted = ours, theirs
        wrong = found != wanted
        difference = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    else:
        found, wanted = ours.astype(np.float64), theirs.astype(np.float64)
        same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.where(same, 0.0, np.abs(found - wanted))
            difference = np.where(np.isnan(difference), np.inf, difference)
            wrong = difference > atol + rtol * np.where(np.isfinite(wanted), np.abs(wanted), 0.0)
    if difference.size == 0:
        return Layer(*label, 0.0, 0.0, 0.0)
    magnitude = float(np.max(np.abs(np.where(np.isfinite(wanted), wanted, 0)).astype(np.float64)))
    most = float(difference.max())
    return Layer(*label, most, most / magnitude if magnitude > 0 else (0.0 if most == 0 else float("inf")), float(np.mean(wrong)))


def _random(session: Session, given: Mapping[str, Any], seed: int, dims: Mapping[str, int]) -> dict[str, Any]:
    """Returns the given inputs, and random arrays for the others."""
    random, arrays = np.random.default_rng(seed), dict(given)
    names = {value.name for value in session.inputs}
    symbols = {dim for value in session.inputs for dim in value.shape or () if isinstance(dim, str)}
    for kind, unknown, known in (("--input", set(given) - names, names), ("--dim", set(dims) - symbols, symbols)):
        if unknown:
            raise ValueError(f"{kind} {sorted(unknown)[0]}: the model has {', '.join(sorted(known)) or 'none'}")
    for value in session.inputs:
        if value.name in arrays or value.optional:
            continue
        shape = [dim if isinstance(dim, int) else dims.get(str(dim), 1) for dim in value.shape or ()]
        kind = np.dtype(value.dtype)
        arrays[value.name] = random.uniform(-1, 1, shape).astype(kind) if kind.kind == "f" else random.integers(0, 2, shape).astype(kind)
    return arrays


def _dimension(entry: str) -> tuple[str, int]:
    name, _, size = entry.partition("=")
    if not name or not size.isdecimal():
        raise ValueError(f"--dim {entry}: write NAME=N, as in batch=4")
    return name, int(size)


def _entry(layer: Layer) -> dict[str, Any]:
    """Returns the fields of a layer for JSON, which has no infinity: such a difference is null."""
    return {name: None if value == float("inf") else value for name, value in asdict(layer).items()}


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m anabranch.layers", description="Finds the first node whose outputs differ from those of ONNX Runtime.")
    parser.add_argument("model", help="ONNX file")
    parser.add_argument("--input", action="append", default=[], metavar="[NAME=]FILE", help="NAME=FILE.npy, or FILE.npz with arrays by name; may be repeated")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="size of an open dimension of random inputs [default: 1]")
    parser.add_argument("--random", type=int, default=0, metavar="SEED", help="seed of inputs that are not given [default: 0]")
    parser.add_argument("--rtol", type=float, default=1e-3, help="allowed difference by the expected magnitude [default: 0.001]")
    parser.add_argument("--atol", type=float, default=1e-5, help="allowed absolute difference in addition [default: 0.00001]")
    parser.add_argument("--place", help="strategy or device, as of the command")
    parser.add_argument("--no-gpu", action="store_true", help="use no GPU")
    parser.add_argument("--software-gpu", action="store_true", help="count a software Vulkan adapter as a GPU")
    parser.add_argument("--gpu-backend", help="find GPUs by vulkan, metal, dx12 or gl")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns its exit code: 0, 2 for unusable input, or 3 if an output differs."""
    asked = _arguments(arguments)
    try:
        dims = dict(map(_dimension, asked.dim))
        given: dict[str, Any] = {}
        for entry in asked.input:
            name, file = entry.split("=", 1) if "=" in entry and not Path(entry).exists() else ("", entry)
            loaded = np.load(file)
            is_archive = isinstance(loaded, np.lib.npyio.NpzFile)
            if is_archive == bool(name):
                raise ValueError(f"--input {entry}: write NAME=FILE.npy for one array, or FILE.npz for arrays with names")
            given.update(dict(loaded) if is_archive else {name: loaded})
        options: dict[str, Any] = {"gpu": not asked.no_gpu, "software_gpu": asked.software_gpu}
        options |= {name: value for name in ("place", "gpu_backend") if (value := getattr(asked, name))}
        inputs = _random(Session(asked.model, **options), given, asked.random, dims)
        layers = compare(asked.model, inputs, rtol=asked.rtol, atol=asked.atol, **options)
    except ImportError as error:
        print(f"layers: {error}; `pip install onnx onnxruntime` installs what is missing", file=sys.stderr)
        return 2
    except (AnabranchError, OSError, ValueError, ReferenceFailure) as error:
        print(f"layers: {asked.model}: {error}", file=sys.stderr)
        return 2
    if asked.json:
        report = {
            "agrees": layers.agrees,
            "first": layers.first and layers.first.output,
            "layers": list(map(_entry, layers.layers)),
            "whole": list(map(_entry, layers.whole)),
            "skipped": layers.skipped,
        }
        print(json.dumps(report, allow_nan=False))
    else:
        print(layers)
    return 0 if layers.agrees else 3


if __name__ == "__main__":
    sys.exit(main())
