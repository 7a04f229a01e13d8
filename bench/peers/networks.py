"""Measures runs of whole models beside ONNX Runtime, both called from Python in turns, and compares their outputs.

    python bench/peers/networks.py DIRECTORY ... [--threads 1,2] [--rounds 5] [--seconds 0.2] [--json FILE]

Both sessions of a model are in one process, on CPUs alone; the two run in turns, round by round, for the given seconds.
Each turn begins after a pause, because threads of the other session go on spinning for some time.
The ratio is the median of the rounds'. The error is the greatest difference of an output by that output's greatest element.
Inputs are those in the .npz beside each model (`in__NAME`).
It needs numpy and onnxruntime of PyPI, and `pip install ./python`.
"""

import argparse
import json
import math
import statistics
import time
from pathlib import Path

from opening import anabranch_session, files_of, inputs_of, onnxruntime_session

PAUSE = 0.1  # seconds; in less, ONNX Runtime's threads took a tenth of our time with two threads


def main():
    arguments = parse()
    files = files_of(arguments.models)
    rows = []
    print("| model | threads | ours, ms | ONNX Runtime | ratio | error |\n|---|" + "--:|" * 5)
    for threads in arguments.threads:
        for file in files:
            row = {"model": file.stem, "threads": threads} | measured(file, threads, arguments)
            rows.append(row)
            ours, theirs = (statistics.median(seconds) * 1e3 for seconds in row["seconds"])
            print(f"| {row['model']} | {threads} | {ours:.3g} | {theirs:.3g} | {row['ratio']:.2f} | {row['error']:.1e} |", flush=True)
    for threads in arguments.threads:
        ratios = [row["ratio"] for row in rows if row["threads"] == threads]
        print(f"\nGeometric mean of the ratios with {threads} threads: {math.exp(statistics.fmean(map(math.log, ratios))):.3f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", help="ONNX files, or directories of them")
    parser.add_argument("--threads", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2], help="numbers of threads (1,2)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each program and model (5)")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a turn (0.2)")
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    return parser.parse_args()


def measured(file, threads, arguments):
    """Seconds per run of each program in each round, the median of the ratios, and the error."""
    inputs = inputs_of(file)
    runs = [create(file, threads)() for create in (anabranch_session, onnxruntime_session)]
    found, wanted = (outputs(run(inputs)) for run in runs)
    error = max((abs(a - b).max() / max(abs(b).max(), 1e-30) for a, b in zip(found, wanted, strict=True)), default=0)
    seconds = [[], []]
    for _ in range(arguments.rounds):
        for run, own in zip(runs, seconds):
            time.sleep(PAUSE)
            run(inputs)
            count, start = 0, time.perf_counter()
            while not count or time.perf_counter() - start < arguments.seconds:
                run(inputs)
                count += 1
            own.append((time.perf_counter() - start) / count)
    return {"seconds": seconds, "ratio": statistics.median(ours / theirs for ours, theirs in zip(*seconds)), "error": float(error)}


def outputs(result):
    """Arrays in the model's order."""
    return list(result.values()) if isinstance(result, dict) else result


if __name__ == "__main__":
    main()
