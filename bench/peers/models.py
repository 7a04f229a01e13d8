"""Makes the models of the comparison that are not bundled: chains of tiny nodes, and tells the size of a model's weights.

`run` beside this file calls it: `models.py DIRECTORY MODEL …` writes chain1.onnx, chain100.onnx and chain1000.onnx into the
directory and prints the bytes of all weights of each model as JSON. A chain's nodes are Neg and Abs in turns on 16 floats:
ONNX Runtime's optimisations leave them, and ours are off for them (each runtime's program checks that all are left).
"""

import json
import math
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper


def chain(length):
    kinds = ["Neg", "Abs"]
    nodes = [helper.make_node(kinds[at % 2], [f"v{at}"], [f"v{at + 1}"], name=f"n{at}") for at in range(length)]
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [16])
    graph = helper.make_graph(nodes, "chain", [value("v0")], [value(f"v{length}")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def weights(file):
    """Bytes of all initialisers, wherever they are stored."""
    model = onnx.load(str(file), load_external_data=False)
    size = lambda tensor: math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return sum(size(tensor) for tensor in model.graph.initializer)


directory = Path(sys.argv[1])
for length in (1, 100, 1000):
    onnx.save(chain(length), str(directory / f"chain{length}.onnx"))
print(json.dumps({Path(file).stem: weights(file) for file in sys.argv[2:]}))
