"""Milliseconds from each export's file to ONNX Runtime's first result: the median of five sessions that are opened and run once.

    python tests/onnx/exports/first_result.py target/onnx-exports > target/first_result.json

The example `onnx_exports` sets them beside ours, which it measures in the same way.
"""

import json
import pathlib
import statistics
import sys
import time

import numpy as np
import onnxruntime


def first_result(path):
    arrays = np.load(path.with_suffix(".npz"))
    inputs = {name[4:]: arrays[name] for name in arrays if name.startswith("in__")}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    times = []
    for _ in range(5):
        began = time.perf_counter()
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, inputs)
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = sorted(pathlib.Path(sys.argv[1]).glob("*.onnx"))
    print(json.dumps({path.stem: first_result(path) for path in found if path.with_suffix(".npz").exists()}, indent=1))
