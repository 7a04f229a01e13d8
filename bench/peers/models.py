"""Prepares the models of the comparison: chains of tiny nodes, and inputs for whole models.

`run` beside this file calls it: `models.py DIRECTORY MODEL …` writes chain1.onnx, chain100.onnx and chain1000.onnx into the
directory and prints what `run` has to know of each model as JSON. A chain's nodes are Neg and Abs in turns on 16 floats:
ONNX Runtime's optimisations leave them, and ours are off for them (each runtime's program checks that all are left).

Every program of the comparison has to see the same inputs. A model without an .npz that holds them all is linked into the directory
with one beside it: what is missing is random, and sizes that it leaves open are 1. Elements of inputs and of outputs that are
known are written as raw files too, for programs that read no .npz.
"""

import json
import math
import sys
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper

RAW = {"float32": "f32", "int64": "i64"}


def chain(length):
    kinds = ["Neg", "Abs"]
    nodes = [helper.make_node(kinds[at % 2], [f"v{at}"], [f"v{at + 1}"], name=f"n{at}") for at in range(length)]
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [16])
    graph = helper.make_graph(nodes, "chain", [value("v0")], [value(f"v{length}")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def described(file, directory):
    """Where the model with all its inputs is, its raw inputs and known outputs, and the bytes of its weights."""
    graph = onnx.load(str(file), load_external_data=False).graph
    directory.mkdir(parents=True, exist_ok=True)
    weights = {tensor.name for tensor in graph.initializer}
    wanted = [value for value in graph.input if value.name not in weights]
    members = beside(file)
    given = {value.name: members.get(f"in__{value.name}") for value in wanted}
    inputs = {value.name: random(value) if given[value.name] is None else given[value.name] for value in wanted}
    path = linked(file, directory, inputs) if any(array is None for array in given.values()) else file
    names = [f"out__{value.name}" for value in graph.output]
    known = all(name in members for name in names)
    return {
        "path": str(path), "directory": str(directory), "weights": sum(map(size, graph.initializer)),
        "inputs": [raw(directory / f"in{at}", *pair) for at, pair in enumerate(inputs.items())],
        "outputs": [str(written(directory / f"out{at}", members[name].astype(numpy.float32))) for at, name in enumerate(names)] if known else [],
    }


def beside(file):
    arrays = file.with_suffix(".npz")
    return dict(numpy.load(arrays)) if arrays.exists() else {}


def random(value):
    kind = value.type.tensor_type
    sizes = [dim.dim_value or 1 for dim in kind.shape.dim]
    dtype, numbers = helper.tensor_dtype_to_np_dtype(kind.elem_type), numpy.random.default_rng(1)
    floats = numpy.issubdtype(dtype, numpy.floating)
    return (numbers.uniform(-1, 1, sizes) if floats else numbers.integers(0, 2, sizes)).astype(dtype)


def linked(file, directory, inputs):
    link = directory / file.name
    link.unlink(missing_ok=True)
    link.symlink_to(file.resolve())
    numpy.savez(link.with_suffix(".npz"), **{f"in__{name}": values for name, values in inputs.items()})
    return link


def raw(file, name, values):
    """An input as an argument of a program: its name, type, sizes and file of elements."""
    return f"{name}:{RAW.get(str(values.dtype), values.dtype)}:{'x'.join(map(str, values.shape))}:{written(file, values)}"


def written(file, values):
    values.tofile(file)
    return file


def size(tensor):
    """Bytes of an initialiser, wherever they are stored."""
    return math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


directory = Path(sys.argv[1])
for length in (1, 100, 1000):
    onnx.save(chain(length), str(directory / f"chain{length}.onnx"))
    numpy.savez(directory / f"chain{length}.npz", in__v0=numpy.zeros(16, numpy.float32))
print(json.dumps({Path(file).stem: described(Path(file), directory / "models" / Path(file).stem) for file in sys.argv[2:]}))
