"""What a run through ONNX Runtime takes beside a run of our own session.

    python plugin/ort/tests/overhead.py target/release/libanabranch_ort.so target/release/anabranch

A chain of operators on few elements: whole runs through the provider in turn with ONNX Runtime's own CPU provider, medians of 5 × 2000 runs. `own` is
the same model run by the command on the same number of threads, in which nothing of ONNX Runtime or Python is; `python` is what an identity takes that
ONNX Runtime computes itself, which is the cost of the call from Python. What the provider adds is the rest: provider − own − python.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort
from provider import F32, built, helper, session


def median_us(own, x):
    times = []
    for _ in range(2000):
        start = time.perf_counter()
        own.run(None, {"x": x})
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def command_us(model):
    """The median of a run by the command, without a provider around it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "chain.onnx")
        with open(path, "wb") as file:
            file.write(model)
        command = [sys.argv[2], "run", path, "--random", "0", "--no-gpu", "--threads", "1", "--repeat", "2000", "--no-learn", "--json"]
        told = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return told["latency_ms"]["median"] * 1e3


def theirs(model):
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"])


ort.set_default_logger_severity(3)
ort.register_execution_provider_library("anabranch", os.path.abspath(sys.argv[1]))
print("nodes  elements  provider µs  CPU provider µs  own µs  python µs  added µs")
for nodes, elements in [(1, 4), (1, 4096), (1, 65536), (16, 4)]:
    # Alternating operators, so that fusion leaves a single node.
    chain = [helper.make_node("Relu" if n % 2 else "Neg", [f"v{n}" if n else "x"], ["y" if n == nodes - 1 else f"v{n + 1}"])
             for n in range(nodes)]
    value = ([("x", F32, [elements])], [("y", F32, [elements])])
    model = built(chain, *value)
    x = np.zeros(elements, np.float32)
    sessions = [session(model, {"threads": "1"}), theirs(model), theirs(built([helper.make_node("Identity", ["x"], ["y"])], *value))]
    turns = [[median_us(one, x) for one in sessions] for _ in range(5)]
    ours, cpu, python = (statistics.median(turn[at] for turn in turns) for at in range(3))
    own = command_us(model)
    print(f"{nodes:5}  {elements:8}  {ours:11.1f}  {cpu:15.1f}  {own:6.1f}  {python:9.1f}  {ours - own - python:8.1f}", flush=True)
