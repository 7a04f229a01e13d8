"""Writes the tests of single operators in 64-bit floats: those of the package `onnx`, with what may be double made double.

    python tests/onnx/write_doubles.py target/onnx-suite
    python tests/onnx/write_doubles.py tests/onnx/selection --select

Each test of a node that the standard types for double becomes folders double/NAME: once with numbers whose last digits only a
double has, and once with numbers of about 10^200 and 10^-200 each, which no narrower float holds. The expected outputs are those
of ONNX's reference evaluator, which computes in the type of its inputs; operators for which it does not are in NARROW. With
--select only the smallest test of each operator is written.
"""

import json
import pathlib
import shutil
import sys
import warnings

import numpy
import onnx
from onnx import TensorProto, defs, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator

# Operators whose evaluator rounds to 32 bits or draws random numbers, or whose outputs have other types.
NARROW = {
    "Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
    "BitCast", "Cast", "CastLike",
    "DeformConv", "Erf", "Gelu", "GridSample", "GroupNormalization", "HardSwish", "LRN",
}

# Attributes with which the evaluator rounds: it computes with them in 32 bits.
NARROW_ATTRIBUTES = {("Attention", "scale"), ("Resize", "cubic_coeff_a")}

# Operators that overflow in the evaluator although the result does not.
OVERFLOWING = {"Attention", "BatchNormalization", "LayerNormalization", "RMSNormalization"}

SCALES = {"": 1.0, "_large": 1e200, "_small": 1e-200}

# Maximum bytes of a test that --select writes.
SMALL = 20_000

# Operators for which --select also writes the tests with numbers that no narrower float holds.
EXTREME = {
    "AveragePool", "Conv", "ConvTranspose", "CumSum", "Einsum", "Gemm", "GlobalAveragePool", "GlobalMaxPool", "LSTM",
    "LogSoftmax", "MatMul", "MaxPool", "ReduceL1", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceSum", "Resize",
    "RoiAlign", "ScatterND", "Softmax", "TopK", "DFT",
}


def main():
    target, select = pathlib.Path(sys.argv[1]) / "double", "--select" in sys.argv[2:]
    shutil.rmtree(target, ignore_errors=True)
    found = {}
    for case in load_model_tests(kind="node"):
        if case.model is None or "_expanded" in case.name or len(case.model.graph.node) != 1:
            continue
        for name, scale in SCALES.items():
            if select and name and case.model.graph.node[0].op_type not in EXTREME:
                continue
            made = doubled(case, scale)
            if made is not None:
                size = sum(len(part) for part in made.values())
                found.setdefault((case.model.graph.node[0].op_type, name), []).append((size, case.name + name, made))
    for tests in found.values():
        tests = sorted(tests, key=lambda test: test[:2])
        for _, name, files in [test for test in tests[:1] if test[0] < SMALL] if select else tests:
            for file, content in files.items():
                path = target / name / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
    print(len({name for name, _ in found}), "operators")


def doubled(case, scale):
    """The test's files in double; None where it has no input that can be, or its outputs cannot be had."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph, node = model.graph, model.graph.node[0]
    if node.op_type in NARROW or node.domain not in ("", "ai.onnx"):
        return None
    attributes = {(node.op_type, attribute.name) for attribute in node.attribute}
    cubic = any(attribute.s == b"cubic" for attribute in node.attribute)
    if attributes & NARROW_ATTRIBUTES or cubic or scale > 1.0 and node.op_type in OVERFLOWING:
        return None
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    schema = defs.get_schema(node.op_type, opset, "")
    doubles = {name for index, name in enumerate(node.input) if name and is_double(schema, schema.inputs, index)}
    made = {name for index, name in enumerate(node.output) if name and is_double(schema, schema.outputs, index)}
    asked = [attribute for attribute in node.attribute if attribute.name in ("output_datatype", "dtype")]
    for attribute in asked:
        attribute.i = TensorProto.DOUBLE if attribute.i == TensorProto.FLOAT else attribute.i
    if node.op_type.endswith("Window") and not asked:
        node.attribute.append(onnx.helper.make_attribute("output_datatype", TensorProto.DOUBLE))
    random = numpy.random.default_rng(7)
    inputs, changed = {}, node.op_type.endswith(("Window", "MelWeightMatrix"))
    for info, value in zip(graph.input, case.data_sets[0][0]):
        value = value if isinstance(value, numpy.ndarray) else numpy_helper.to_array(value) if isinstance(value, TensorProto) else None
        if value is None:
            return None
        if info.name in doubles and value.dtype == numpy.float32:
            value = value.astype(numpy.float64) * (1 + 1e-9 * random.uniform(-1, 1, value.shape)) * scale
            value = numpy.asarray(value, numpy.float64)
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
            changed = True
        inputs[info.name] = value
    if not changed:
        return None
    for info in graph.output:
        if info.name in made and info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    try:
        onnx.checker.check_model(model, full_check=True)
        outputs = ReferenceEvaluator(model).run(None, inputs)
    except Exception:
        return None
    if not all(isinstance(output, numpy.ndarray) for output in outputs):
        return None
    outputs = [
        output.astype(numpy.float32) if info.type.tensor_type.elem_type == TensorProto.FLOAT else output
        for output, info in zip(outputs, graph.output)
    ]
    wide = all(
        output.dtype == numpy.float64
        for output, info in zip(outputs, graph.output)
        if info.type.tensor_type.elem_type == TensorProto.DOUBLE
    )
    floats = [output for output in outputs if output.dtype == numpy.float64]
    finite = [output[numpy.isfinite(output)] for output in floats]
    if not wide or scale != 1.0 and not any(part.size and numpy.abs(part).max() > 0 for part in finite):
        return None
    greatest = max((float(numpy.abs(part).max()) for part in finite if part.size), default=0.0)
    files = {
        "model.onnx": model.SerializeToString(),
        "data.json": json.dumps({"rtol": 1e-12, "atol": 1e-14 * greatest}).encode() + b"\n",
    }
    for role, values, infos in (("input", inputs.values(), graph.input), ("output", outputs, graph.output)):
        for index, (value, info) in enumerate(zip(values, infos)):
            files[f"test_data_set_0/{role}_{index}.pb"] = numpy_helper.from_array(value, info.name).SerializeToString()
    return files


def is_double(schema, formal, index):
    """Whether the standard types this input or output for double."""
    if index >= len(formal) and (not formal or formal[-1].option != defs.OpSchema.FormalParameterOption.Variadic):
        return False
    type_of = formal[min(index, len(formal) - 1)].type_str
    allowed = {one.type_param_str: one.allowed_type_strs for one in schema.type_constraints}
    return "tensor(double)" in allowed.get(type_of, [type_of])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    warnings.filterwarnings("ignore")
    main()
