"""Measures samples per second of `Pipeline.map` beside a loop of `Session.run`, both called from Python.

    python bench/peers/maps.py MODEL.onnx ... [--stages all,together,replicated] [--rounds 5]

The loop and the pipelines of one session take turns in periods of 0.3 seconds, without GPUs and with all cores.
Inputs are those in the .npz beside each model (`in__NAME`).
It needs numpy of PyPI, and `pip install ./python`.
"""

import argparse
import statistics
import time
from itertools import repeat
from pathlib import Path

from opening import inputs_of

PERIOD = 0.3  # seconds


def main():
    arguments = parse()
    print("| model | loop of `run` | " + " | ".join(f"{stages} | by loop" for stages in arguments.stages) + " |")
    print("|---|" + "--:|" * (1 + 2 * len(arguments.stages)))
    for file in arguments.models:
        loop, *maps = rates(file, arguments)
        by_loop = [statistics.median(a / b for a, b in zip(found, loop)) for found in maps]
        cells = [f"{statistics.median(found):.0f} | {ratio:.2f}" for found, ratio in zip(maps, by_loop)]
        print(f"| {file.stem} | {statistics.median(loop):.0f} | {' | '.join(cells)} |", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", help="ONNX files")
    parser.add_argument("--stages", type=lambda text: text.split(","), default=["all", "together", "replicated"],
                        help="mappings of the pipelines (all,together,replicated)")
    parser.add_argument("--rounds", type=int, default=5, help="periods of each (5)")
    return parser.parse_args()


def rates(file, arguments):
    """Samples per second of the loop and of each pipeline, a list of the rounds' rates each."""
    import anabranch

    session, inputs = anabranch.Session(file, gpu=False), inputs_of(file)
    pipelines = [session.pipeline(inputs, stages=stages) for stages in arguments.stages]
    streams = [lambda: map(session.run, repeat(inputs))]
    streams += [lambda pipeline=pipeline: pipeline.map(repeat(inputs)) for pipeline in pipelines]
    found = [[] for _ in streams]
    for _ in range(arguments.rounds + 1):
        for stream, into in zip(streams, found):
            into.append(rate(stream()))
    return [of[1:] for of in found]


def rate(results):
    """Results per second of a stream without an end."""
    count, started = 0, time.perf_counter()
    for _ in results:
        count += 1
        if time.perf_counter() - started > PERIOD:
            break
    return count / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
