"""Measures the time from a model's file to its first result, and the memory until then, beside ONNX Runtime.

    python bench/peers/opening.py DIRECTORY ... [--threads 1,2] [--rounds 5] [--json FILE]

Each opening is a process of its own, the two programs run in turns, and both are called from Python on CPUs alone.
Files are read once before, so that they are in the page cache.
Time begins before the session is created and ends with the first result; modules are imported before.
Memory is the greatest resident size until then, minus the size before; the peak has Python, numpy and the libraries, too.
Inputs are those in the .npz beside each model (`in__NAME`).
It needs numpy and onnxruntime of PyPI, and `pip install ./python`.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = ("anabranch", "onnxruntime")
FIGURES = ("open", "first", "memory", "peak")
QUIET = {"OPENBLAS_NUM_THREADS": "1"}  # Threads of numpy spin for some milliseconds after its import.


def main():
    arguments = parse()
    if arguments.open_with:
        return print(json.dumps(opening(arguments.open_with, arguments.models[0], arguments.threads[0])))
    files = files_of(arguments.models)
    rows = []
    print("| model | threads | open to first result, ms | ONNX Runtime | ratio | of it open | ONNX Runtime"
          " | memory, MB | ONNX Runtime | ratio | peak, MB | ONNX Runtime |\n|---|" + "--:|" * 11)
    for file in files:
        file.read_bytes()
        for threads in arguments.threads:
            row = {"model": file.stem, "threads": threads} | in_turns(file, threads, arguments.rounds)
            rows.append(row)
            print(line(row), flush=True)
    for threads in arguments.threads:
        of = [row for row in rows if row["threads"] == threads]
        means = [f"{figure} {math.exp(statistics.fmean(math.log(row['ratios'][figure]) for row in of)):.2f}" for figure in FIGURES[1:]]
        print(f"\nGeometric means of the ratios with {threads} threads: {', '.join(means)}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", help="ONNX files, or directories of them")
    parser.add_argument("--threads", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2],
                        help="numbers of threads and cores (1,2)")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each program and model (5)")
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    parser.add_argument("--open-with", choices=PROGRAMS, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_turns(file, threads, rounds):
    """The medians of each program's processes, and the medians of the rounds' ratios."""
    samples = {program: [] for program in PROGRAMS}
    for _ in range(rounds):
        for program in PROGRAMS:
            command = [sys.executable, __file__, file, "--threads", str(threads), "--open-with", program]
            done = subprocess.run(command, check=True, capture_output=True, env=os.environ | QUIET)
            samples[program].append(json.loads(done.stdout))
    medians = {program: {figure: statistics.median(sample[figure] for sample in found) for figure in FIGURES}
               for program, found in samples.items()}
    ratios = {figure: statistics.median(ours[figure] / max(theirs[figure], 1e-9) for ours, theirs in zip(*samples.values()))
              for figure in FIGURES}
    return {"medians": medians, "ratios": ratios, "samples": samples}


def line(row):
    ours, theirs = (row["medians"][program] for program in PROGRAMS)
    times = [f"{ours['first'] * 1e3:.3g}", f"{theirs['first'] * 1e3:.3g}", f"{row['ratios']['first']:.2f}",
             f"{ours['open'] * 1e3:.3g}", f"{theirs['open'] * 1e3:.3g}"]
    memory = [f"{ours['memory'] / 1e6:.1f}", f"{theirs['memory'] / 1e6:.1f}", f"{row['ratios']['memory']:.2f}",
              f"{ours['peak'] / 1e6:.1f}", f"{theirs['peak'] / 1e6:.1f}"]
    return f"| {' | '.join([row['model'], str(row['threads']), *times, *memory])} |"


def opening(program, file, threads):
    """Opens and runs a model once in this process; times in seconds, memory in bytes."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    inputs = inputs_of(file)
    create = {"anabranch": anabranch_session, "onnxruntime": onnxruntime_session}[program](file, threads)
    Path("/proc/self/clear_refs").write_text("5")  # The greatest resident size is the present one.
    before = resident("VmRSS")
    started = time.perf_counter()
    run = create()
    opened = time.perf_counter()
    outputs = run(inputs)
    first = time.perf_counter()
    assert outputs
    peak = resident("VmHWM")
    return {"open": opened - started, "first": first - started, "memory": peak - before, "peak": peak}


def files_of(places):
    """ONNX files, and those of directories."""
    return [file for place in places for file in ([place] if place.is_file() else sorted(place.glob("*.onnx")))]


def inputs_of(file):
    """The inputs in the .npz beside a model."""
    import numpy as np

    with np.load(file.with_suffix(".npz")) as members:
        return {name[4:]: members[name] for name in members.files if name.startswith("in__")}


def anabranch_session(file, threads):
    import anabranch

    return lambda: anabranch.Session(file, threads=threads, gpu=False).run


def onnxruntime_session(file, threads):
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads

    def create():
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        return lambda inputs: session.run(None, inputs)

    return create


def resident(which):
    """A resident size of this process in bytes: `VmRSS`, or its greatest, `VmHWM`."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith(f"{which}:"))


if __name__ == "__main__":
    main()
