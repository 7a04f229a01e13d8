"""Runs a model beside ONNX Runtime: the same inputs, the same outputs, and what each takes.

    python examples/python/beside_onnxruntime.py [MODEL.onnx]

Without a model, one of the repository's. Inputs are random, with 1 for each dimension that the model leaves open.
"""

import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime

import anabranch as ab

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"


def random_inputs(session):
    """An array for each input that the model needs."""
    generator = np.random.default_rng(0)
    shape = lambda value: [size if isinstance(size, int) else 1 for size in value.shape]
    return {value.name: generator.standard_normal(shape(value)).astype(value.dtype) for value in session.inputs if not value.optional}


def median_ms(run, repeat=20):
    """The median of some runs in milliseconds, after one that does not count."""
    run()
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1e3


model = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "convnet.onnx"
ours = ab.Session(model, place="auto", calibrate=True, gpu=False)
theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])

inputs = random_inputs(ours)
found, expected = ours.run(inputs), theirs.run(None, inputs)
for name, array in zip(found, expected, strict=True):
    off = np.abs(found[name].astype(np.float64) - array).max(initial=0) / max(np.abs(array).max(initial=0), 1e-30)
    print(f"{name}: {array.dtype}{list(array.shape)}, differs by {off:.1e} of the greatest element")
    assert off < 1e-4

print(ours.plan(inputs))
print(f"Anabranch {median_ms(lambda: ours.run(inputs)):.3f} ms, ONNX Runtime {median_ms(lambda: theirs.run(None, inputs)):.3f} ms")
