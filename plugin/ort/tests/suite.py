"""The standard's tests through the provider: which are claimed whole, and whether their results are right.

    python plugin/ort/tests/suite.py target/debug/libanabranch_ort.so target/onnx-suite/node [--list]

The folder is one that tests/onnx/write_suite.py has written. Tests that ONNX Runtime itself does not load are counted apart.
"""

import collections
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper
from provider import session


def tensors(folder, kind):
    """The arrays of a test's data set, in their order; None if one is no tensor."""
    found = []
    for at in range(len(list(folder.glob(f"{kind}_*.pb")))):
        tensor = onnx.TensorProto()
        try:
            tensor.ParseFromString((folder / f"{kind}_{at}.pb").read_bytes())
            found.append(numpy_helper.to_array(tensor))
        except Exception:
            return None
    return found


def outcome(folder):
    """`right`, `wrong`, `others` (not all of it is ours), `not loaded` or `failed`, and why."""
    model = onnx.load(folder / "model.onnx")
    model.ir_version = min(model.ir_version, 10)
    try:
        own = session(model.SerializeToString())
    except Exception as error:
        text = str(error)
        return ("others" if "fallback" in text else "not loaded"), text
    for data in sorted(folder.glob("test_data_set_*")):
        inputs, expected = tensors(data, "input"), tensors(data, "output")
        if inputs is None or expected is None or any(array.dtype.kind == "V" for array in inputs):
            return "not loaded", "its data are nothing that NumPy hands to ONNX Runtime"
        # Optional inputs that are left out have no file, so there may be fewer arrays than inputs.
        given = {one.name: array for one, array in zip(own.get_inputs(), inputs)}
        try:
            found = own.run(None, given)
        except Exception as error:
            return "failed", str(error)
        for one, other in zip(found, expected):
            same = one.shape == other.shape and (
                np.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True) if one.dtype.kind in "fc" else np.array_equal(one, other))
            if not same:
                return "wrong", f"{one.shape} {other.shape}"
    return "right", ""


ort.set_default_logger_severity(4)
ort.register_execution_provider_library("anabranch", os.path.abspath(sys.argv[1]))
counts = collections.Counter()
for folder in sorted(Path(sys.argv[2]).iterdir()):
    if (folder / "model.onnx").exists():
        what, why = outcome(folder)
        counts[what] += 1
        if what in ("wrong", "failed") or "--list" in sys.argv:
            print(f"{what}: {folder.name}: {why[:300]}", flush=True)
print(f"onnxruntime {ort.__version__}:", ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
sys.exit(counts["wrong"] + counts["failed"] > 0)
