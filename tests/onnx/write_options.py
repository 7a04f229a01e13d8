"""Writes tests of what the standard's own tests leave out to a folder, beside those of `write_suite.py`.

    python tests/onnx/write_options.py target/onnx-suite

They are options of operators, old operator sets, and values that are sparse. Inputs are random, from a seed. The expected outputs are those
of ONNX Runtime on the CPU, or NumPy's where ONNX Runtime has no kernel.
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

random = np.random.default_rng(41)


def f(*dims):
    return random.standard_normal(dims).astype(np.float32)


def pools():
    """Windows over volumes with their places, borders as wide as windows, and windows that end beyond the border."""
    volume, image, row = f(1, 2, 3, 4, 5), f(2, 2, 6, 7), f(1, 2, 9)
    for order in (0, 1):
        yield f"max_pool_places_volume_{order}", "MaxPool", 18, [volume], 2, {
            "kernel_shape": [2, 2, 3], "storage_order": order, "pads": [1, 0, 1, 0, 1, 1], "strides": [2, 1, 2]}
    yield "max_pool_places_volume_dilated", "MaxPool", 18, [volume], 2, {
        "kernel_shape": [2, 2, 2], "dilations": [2, 1, 3], "ceil_mode": 1}
    yield "max_pool_places_row", "MaxPool", 18, [row], 2, {"kernel_shape": [3], "pads": [2, 1], "strides": [2]}
    for p, opset in ((1, 18), (2, 18), (3, 22)):
        yield f"lp_pool_ceil_{p}", "LpPool", opset, [image], 1, {
            "kernel_shape": [3, 4], "strides": [2, 3], "pads": [1, 0, 0, 1], "ceil_mode": 1, "p": p}
    yield "lp_pool_ceil_row", "LpPool", 18, [row], 1, {"kernel_shape": [4], "strides": [3], "ceil_mode": 1}
    yield "lp_pool_ceil_volume", "LpPool", 18, [volume], 1, {
        "kernel_shape": [2, 3, 2], "strides": [2, 2, 2], "ceil_mode": 1}


def wide_borders():
    """Borders as wide as windows, which ONNX Runtime refuses: the mean of what a window holds, of nothing 0 / 0."""
    x = f(1, 1, 5)
    padded = np.pad(x, ((0, 0), (0, 0), (3, 2)))
    inside = np.pad(np.ones_like(x), ((0, 0), (0, 0), (3, 2)))
    at = [slice(start, start + 2) for start in range(0, 9, 2)]
    sums = np.stack([padded[..., place].sum(-1) for place in at], -1)
    counts = np.stack([inside[..., place].sum(-1) for place in at], -1)
    window = {"kernel_shape": [2], "pads": [3, 2], "strides": [2]}
    with np.errstate(invalid="ignore"):
        yield "average_pool_wide_border", "AveragePool", 18, [x], [sums / counts], window
    yield "average_pool_wide_border_counts", "AveragePool", 18, [x], [sums / np.float32(2)], {
        **window, "count_include_pad": 1}
    norms = np.stack([np.abs(padded[..., place]).sum(-1) for place in at], -1)
    yield "lp_pool_wide_border", "LpPool", 18, [x], [norms], {**window, "p": 1}
    lowest = np.pad(x, ((0, 0), (0, 0), (3, 2)), constant_values=-np.inf)
    greatest = np.stack([lowest[..., place].max(-1) for place in at], -1)
    yield "max_pool_wide_border", "MaxPool", 18, [x], [greatest], window


def normalized():
    """Batch normalisation with statistics of each element."""
    for dims in ((2, 3, 4), (2, 3, 2, 2), (3, 4)):
        each = dims[1:]
        yield f"batch_norm_of_elements_{len(dims)}", "BatchNormalization", 7, [
            f(*dims), f(*each), f(*each), f(*each), np.abs(f(*each))], 1, {"spatial": 0}


def narrow():
    """Products with weights of 4 bits whose columns have their groups in any order."""
    rows, depth, block = 6, 48, 16
    blocks = depth // block
    weights = random.integers(0, 256, (rows, blocks, block // 2)).astype(np.uint8)
    scales, groups = np.abs(f(rows, blocks)), random.permutation(np.arange(depth) // block).astype(np.int32)
    sizes = {"K": depth, "N": rows, "bits": 4, "block_size": block}
    x = f(2, 3, depth)
    numbers = np.stack([weights & 15, weights >> 4], -1).reshape(rows, depth).astype(np.float32)
    for name, zeros in (("", None), ("_zeros", random.integers(0, 256, (rows, 2)).astype(np.uint8))):
        zero = np.full((rows, blocks), 8) if zeros is None else np.stack([zeros & 15, zeros >> 4], -1).reshape(rows, 4)
        wide = (numbers - zero[:, groups]) * scales[:, groups]
        given = [x, weights, scales, zeros, groups]
        # ONNX Runtime's kernel does not read packed zero points here, and its sums in 32 bits cancel.
        expected = [(x.astype(np.float64) @ wide.T.astype(np.float64)).astype(np.float32)]
        yield f"narrow_matmul_groups{name}_constant", "com.microsoft:MatMulNBits", 17, given, expected, sizes


def old():
    """Operators of the first operator sets."""
    x = f(2, 3, 4)
    yield "old_cast", "Cast", 1, [x], [x.astype(np.int32)], {"to": "INT32"}
    yield "old_reshape", "Reshape", 1, [x], [x.reshape(4, 6)], {"shape": [4, -1]}
    yield "old_concat", "Concat", 1, [x, x[:, :1]], [np.concatenate([x, x[:, :1]], 1)], {}
    yield "old_pad", "Pad", 1, [x], [np.pad(x, ((0, 0), (1, 0), (2, 3)), constant_values=1.5)], {
        "paddings": [0, 1, 2, 0, 0, 3], "value": 1.5}
    yield "old_tile", "Tile", 1, [x, np.array(3, np.int64), np.array(1, np.int64)], [np.tile(x, (1, 3, 1))], {}
    yield "old_split", "Split", 1, [x, np.array([1, 2], np.int64)], [x[:, :1], x[:, 1:]], {"axis": 1}
    image = f(1, 2, 2, 3)
    yield "old_upsample", "Upsample", 1, [image], [image.repeat(2, 2).repeat(3, 3)], {
        "height_scale": 2.0, "width_scale": 3.0, "mode": "nearest"}
    selu = np.where(x > 0, x, np.float32(1.6732) * (np.exp(x) - 1)) * np.float32(1.0507)
    yield "old_selu", "Selu", 1, [x], [selu], {}
    yield "old_add", "Add", 1, [x, x[0, :, 0]], [x + x[0, :, :1]], {
        "broadcast": 1, "axis": 1}
    yield "old_not", "Not", 1, [x > 0], [x <= 0], {}
    yield "old_norm_pool", "GlobalLpPool", 1, [image], [np.abs(image).sum((2, 3), keepdims=True)], {"p": 1.0}


def sparse():
    """Constants in coordinate form, in each type and with both forms of indices."""
    for at, dtype in enumerate(["float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32",
                                "int64", "uint64", "bool"]):
        values = numpy_helper.from_array(np.array([1, 0, 3]).astype(dtype), "values")
        flat, coordinates = np.array([1, 4, 5]), np.array([[0, 1], [1, 1], [1, 2]])
        indices = numpy_helper.from_array(coordinates if at % 2 else flat, "indices")
        dense = np.zeros((2, 3), dtype)
        dense.reshape(-1)[flat] = np.array([1, 0, 3]).astype(dtype)
        value = helper.make_sparse_tensor(values, indices, [2, 3])
        yield f"sparse_constant_{dtype}", "Constant", 13, [], [dense], {"sparse_value": value}


def cases():
    """Name, operator with its domain, version, inputs, outputs or how many ONNX Runtime makes, attributes."""
    for kind in (pools, wide_borders, normalized, narrow, old, sparse):
        yield from kind()


def write(root, name, operator, opset, inputs, outputs, attributes):
    domain, _, operator = operator.rpartition(":")
    names = [f"input_{at}" if value is not None else "" for at, value in enumerate(inputs)]
    made = [f"output_{at}" for at in range(outputs if isinstance(outputs, int) else len(outputs))]
    node = helper.make_node(operator, names, made, domain=domain, **attributes)
    given = [(name, value) for name, value in zip(names, inputs) if value is not None]
    # Weights are constants of models whose names say so.
    first = given[:1] if name.endswith("constant") else given
    held = [numpy_helper.from_array(value, name) for name, value in given[len(first):]]
    declared = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in first]
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    info = [helper.make_empty_tensor_value_info(name) for name in made]
    graph = helper.make_graph([node], name, declared, info, initializer=held)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    if isinstance(outputs, int):
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        outputs = session.run(None, dict(first))
    for output, value in zip(model.graph.output, outputs):
        output.CopyFrom(
            helper.make_tensor_value_info(output.name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
    folder = root / "options" / f"test_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    data_set = folder / "test_data_set_0"
    data_set.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "data.json").write_text(json.dumps({"rtol": 1e-5, "atol": 1e-6}) + "\n")
    for role, values in (("input", [value for _, value in first]), ("output", outputs)):
        for at, value in enumerate(values):
            (data_set / f"{role}_{at}.pb").write_bytes(numpy_helper.from_array(value).SerializeToString())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for case in cases():
        write(pathlib.Path(sys.argv[1]), *case)
