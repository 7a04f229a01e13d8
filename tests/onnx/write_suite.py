"""Writes the backend tests of the package `onnx` to a folder, for the harness `onnx_suite`.

    python tests/onnx/write_suite.py target/onnx-suite

Each test becomes a folder KIND/NAME with `model.onnx`, `test_data_set_N/{input,output}_M.pb` as in the package, and
`data.json` with its tolerances. The version of the package is checked: results are compared with a committed list of the tests
of that version. Without the package at hand:

    python -m venv target/onnx-venv && target/onnx-venv/bin/pip install -r tests/onnx/requirements.txt

Tests whose expected outputs have to be downloaded are left out.
"""

import json
import pathlib
import shutil
import sys
import warnings

VERSION = "1.23.2"

try:
    import onnx
    from onnx import TensorProto, numpy_helper
    from onnx.backend.test.loader import load_model_tests
except ImportError as error:
    sys.exit(f"{error}: install tests/onnx/requirements.txt")

# Expected outputs that should be zero, but are the rounding errors of sums in single precision. Attention in 16 bits
# rounds its scores, as `softmax_precision` says. The reference does not, so two outputs of 192 differ by two steps of an
# f16 below 0.5.
ROUNDED = {
    "test_dft_inverse": 1e-6,
    "test_dft_inverse_opset19": 1e-6,
    "test_attention_4d_causal_fp16": 5e-4,
    "test_attention_4d_causal_fp16_expanded": 5e-4,
}

KINDS = {"node": "node", "simple": "simple", "pytorch-operator": "operator", "pytorch-converted": "converted"}


def main():
    if onnx.__version__ != VERSION:
        sys.exit(f"onnx {VERSION} is needed, {onnx.__version__} is installed")
    target = pathlib.Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    for kind, name in KINDS.items():
        for case in load_model_tests(kind=kind):
            write(case, target / name / case.name)
    write_light(target / "light")


def write(case, folder):
    if case.model_dir is not None:
        shutil.copytree(case.model_dir, folder)
    else:
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(case.model.SerializeToString())
        for index, (inputs, outputs) in enumerate(case.data_sets):
            data_set = folder / f"test_data_set_{index}"
            data_set.mkdir()
            write_values(data_set, "input", inputs, case.model.graph.input)
            write_values(data_set, "output", outputs, case.model.graph.output)
    write_tolerance(folder, case.rtol, ROUNDED.get(case.name, case.atol))


def write_values(folder, role, values, declared):
    for index, (value, info) in enumerate(zip(values, declared)):
        (folder / f"{role}_{index}.pb").write_bytes(message(value, info).SerializeToString())


def message(value, info):
    """The value as the message that its declared type asks for."""
    if info.type.HasField("sequence_type"):
        return numpy_helper.from_list(value, info.name)
    if info.type.HasField("map_type"):
        return numpy_helper.from_dict(value, info.name)
    if info.type.HasField("optional_type"):
        return numpy_helper.from_optional(value, info.name)
    if not isinstance(value, TensorProto):
        return numpy_helper.from_array(value, info.name)
    named = TensorProto()
    named.CopyFrom(value)
    named.name = info.name
    return named


def write_light(folder):
    """The real models with constants in place of weights, and their outputs for the package's ramp of an input."""
    data = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for model in sorted(data.glob("light_*.onnx")):
        target = folder / f"test_{model.stem}"
        data_set = target / "test_data_set_0"
        data_set.mkdir(parents=True)
        shutil.copy(model, target / "model.onnx")
        graph = onnx.load(model).graph
        constants = {tensor.name for tensor in graph.initializer}
        given = [info for info in graph.input if info.name not in constants]
        for index, info in enumerate(given):
            (data_set / f"input_{index}.pb").write_bytes(ramp(info).SerializeToString())
        for index, output in enumerate(sorted(data.glob(f"{model.stem}_output_*.pb"))):
            shutil.copy(output, data_set / f"output_{index}.pb")
        write_tolerance(target, 1e-3, 1e-7)


def ramp(info):
    import numpy

    shape = tuple(dim.dim_value if dim.HasField("dim_value") else 1 for dim in info.type.tensor_type.shape.dim)
    count = int(numpy.prod(shape))
    return numpy_helper.from_array((numpy.arange(count).reshape(shape) / count).astype(numpy.float32), info.name)


def write_tolerance(folder, rtol, atol):
    (folder / "data.json").write_text(json.dumps({"rtol": rtol, "atol": atol}) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    warnings.filterwarnings("ignore")
    main()
