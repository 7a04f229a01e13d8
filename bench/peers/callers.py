"""Measures finished runs per second of one session that several Python threads call, beside ONNX Runtime.

    python bench/peers/callers.py MODEL.onnx ... [--callers 1,8] [--threads 1,2] [--rounds 5] [--json FILE]

Each program is a process of its own, on all cores that this process may use; the two run in turns, round by round.
Within a process the numbers of callers take turns in periods of 0.2 seconds.
Inputs are those in the .npz beside each model (`in__NAME`).
It needs numpy and onnxruntime of PyPI, and `pip install ./python`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from opening import PROGRAMS, QUIET, anabranch_session, inputs_of, onnxruntime_session

PERIOD = 0.2  # seconds
PERIODS = 5


def main():
    arguments = parse()
    if arguments.call:
        return print(json.dumps(rates(arguments.call, arguments.models[0], arguments.threads[0], arguments.callers)))
    rows = []
    columns = [f"{program}, {callers}" for program in ("ours", "ONNX Runtime") for callers in arguments.callers]
    print(f"| model | threads | {' | '.join(columns)} | ours, most callers by one | ours by theirs, most callers |")
    print("|---|--:" + "|--:" * (len(columns) + 2) + "|")
    for file in arguments.models:
        for threads in arguments.threads:
            row = {"model": file.stem, "threads": threads} | in_turns(file, threads, arguments)
            rows.append(row)
            print(line(row), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def parse():
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", help="ONNX files")
    parser.add_argument("--callers", type=numbers, default=[1, 8], help="numbers of Python threads that call (1,8)")
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="numbers of threads of the session (1,2)")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each program and model (5)")
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    parser.add_argument("--call", choices=PROGRAMS, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_turns(file, threads, arguments):
    """Runs per second of each program by number of callers: of each process, in the order of the rounds."""
    samples = {program: [] for program in PROGRAMS}
    callers = ",".join(map(str, arguments.callers))
    for _ in range(arguments.rounds):
        for program in PROGRAMS:
            command = [sys.executable, __file__, file, "--threads", str(threads), "--callers", callers, "--call", program]
            done = subprocess.run(command, check=True, capture_output=True, env=os.environ | QUIET)
            samples[program].append(json.loads(done.stdout))
    return {"samples": samples}


def line(row):
    ours, theirs = (row["samples"][program] for program in PROGRAMS)
    cells = [f"{statistics.median(of):.0f}" for samples in (ours, theirs) for of in zip(*samples)]
    gain = statistics.median(rates[-1] / rates[0] for rates in ours)
    ratio = statistics.median(a[-1] / b[-1] for a, b in zip(ours, theirs))
    return f"| {' | '.join([row['model'], str(row['threads']), *cells, f'{gain:.2f}', f'{ratio:.2f}'])} |"


def rates(program, file, threads, callers):
    """Medians of the runs per second of this process, for each number of callers."""
    inputs = inputs_of(file)
    run = {"anabranch": anabranch_session, "onnxruntime": onnxruntime_session}[program](file, threads)()
    found = [[] for _ in callers]
    for _ in range(PERIODS + 1):
        for number, into in zip(callers, found):
            into.append(rate(lambda: run(inputs), number))
    return [statistics.median(of[1:]) for of in found]


def rate(call, callers):
    """Finished calls per second of some threads that call as often as they can."""
    counts = [0] * callers
    started = time.perf_counter()

    def caller(number):
        while time.perf_counter() - started < PERIOD:
            call()
            counts[number] += 1

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
