"""Runs operators beside ONNX Runtime: results and times, in small and large sizes, types and lengths of axes.

    python bench/peers/operators --json operators.json > operators.md
    python bench/peers/operators --drawn 1 --json drawn.json > drawn.md

Sizes, axes, types and attributes are those of a fixed list. With --drawn they are drawn from a seed, and the same seed draws the same cases again. Kernels
are tuned by the list and by seed 1. Seed 2 is for reports: no kernel may be chosen by its figures.

Each case is a model of one node. It runs in turns in two processes, ours and ONNX Runtime's, each on as many cores as it has threads; the other process is
stopped meanwhile. The tables list where results differ and what only one of them runs, then both times and ours by theirs, the greatest ratio first. The
exit status is 1 if one of our results differs or is missing. Needs numpy, onnx and onnxruntime of PyPI, and the package `anabranch`, built with --release.
"""

import argparse
import contextlib
import fnmatch
import json
import multiprocessing
import os
import platform
import signal
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from compare import difference
from draw import Drawn, Fixed
from engine import cores, serve
from families import FAMILIES, cases

OURS, THEIRS = "anabranch", "onnxruntime"
LIMIT = 60  # seconds after which an engine is stopped


def main():
    arguments = parse()
    pick = Fixed() if arguments.drawn is None else Drawn(arguments.drawn)
    chosen = [case for case in cases(arguments.families, pick) if any(fnmatch.fnmatch(case.name, only) or fnmatch.fnmatch(case.op, only) for only in arguments.only)]
    if not chosen:
        sys.exit(f"operators: no operator matches {', '.join(arguments.only)}")
    rows, versions = [], {}
    try:
        for threads in arguments.threads:
            engines = {name: Engine(name, threads) for name in (OURS, THEIRS)}
            versions = {name: engine.version for name, engine in engines.items()}
            for number, case in enumerate(chosen):
                if sys.stderr.isatty() or number % 100 == 0:
                    print(f"\r{threads} threads, {number} of {len(chosen)}: {case.name}\033[K", end="", file=sys.stderr, flush=True)
                rows.append(Row(case, threads, *measured(case, engines, arguments)))
            for engine in engines.values():
                engine.end()
        print(file=sys.stderr)
    finally:
        report(rows, versions)
        if arguments.json:
            arguments.json.write_text(json.dumps([row.data() for row in rows], indent=0) + "\n")
    sys.exit(any(row.outcome in ("differs", "only theirs") for row in rows))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=lambda text: text.split(","), default=list(FAMILIES), help="run some of " + ",".join(FAMILIES) + " (all)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=["*"], help="run the operators that match patterns, such as Reduce*,Conv (all)")
    parser.add_argument("--drawn", type=int, metavar="SEED", help="draw other cases from a seed (the fixed list)")
    default = sorted({1, len(os.sched_getaffinity(0))})
    parser.add_argument("--threads", type=lambda text: [int(number) for number in text.split(",")], default=default, help=f"use so many threads ({default})")
    parser.add_argument("--rounds", type=int, default=5, help="give each engine so many turns; 0 compares results alone (5)")
    parser.add_argument("--seconds", type=float, default=0.003, help="let a turn last so long (0.003)")
    parser.add_argument("--json", type=Path, help="write all samples into this file")
    arguments = parser.parse_args()
    if unknown := set(arguments.families) - set(FAMILIES):
        parser.error(f"--families: there are no families {', '.join(sorted(unknown))}")
    return arguments


class Row:
    """A case on a number of threads: an outcome with its reason, and samples in seconds by engine."""

    def __init__(self, case, threads, outcome, why="", samples=None):
        self.case, self.threads, self.outcome, self.why, self.samples = case, threads, outcome, why, samples or {}

    def us(self, name):
        return 1e6 * statistics.median(self.samples[name])

    def ratio(self):
        return statistics.median(ours / theirs for ours, theirs in zip(self.samples[OURS], self.samples[THEIRS]))

    def data(self):
        kept = {"family": self.case.family, "operator": self.case.name, "case": self.case.label, "threads": self.threads, "outcome": self.outcome}
        return kept | ({"why": self.why} if self.why else {}) | ({"seconds": self.samples} if self.samples else {})


class Engine:
    """The process of an engine. It is started again if it ends."""

    def __init__(self, name, threads):
        self.name, self.threads = name, threads
        self.start()

    def start(self):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(self.name, self.threads, other), daemon=True)
        self.process.start()
        other.close()
        version = self.pipe.recv() if self.pipe.poll(LIMIT) else "it did not start"
        if isinstance(version, str):
            sys.exit(f"operators: {self.name}: {version}")
        self.version = version[0]

    def ask(self, what):
        """Returns the engine's answer; a text if it fails, ends or takes too long."""
        try:
            self.pipe.send(what)
            if self.pipe.poll(LIMIT):
                return self.pipe.recv()
            why = f"no answer in {LIMIT} s"
        except (EOFError, OSError):
            self.process.join(1)
            why = f"its process ended with {self.process.exitcode}"
        self.end()
        self.start()
        return why

    def end(self):
        self.process.kill()
        self.process.join()

    @contextlib.contextmanager
    def stopped(self):
        """Stops the process, whose idle threads may still look for work."""
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)


def measured(case, engines, arguments):
    """Returns an outcome, its reason, and samples by engine."""
    given = (case.model(), case.arrays())
    first = {name: engine.ask(given) for name, engine in engines.items()}
    refused = {name: result for name, result in first.items() if isinstance(result, str)}
    if refused:
        outcome = "none" if len(refused) == 2 else "only theirs" if OURS in refused else "only ours"
        return outcome, "; ".join(f"{name}: {why}" for name, why in refused.items())
    if why := difference(first[OURS], first[THEIRS], case):
        return "differs", why
    samples, last = {name: [] for name in engines}, first
    for number in range(arguments.rounds if case.timed else 0):
        turns = [(OURS, THEIRS), (THEIRS, OURS)][:: 1 if number % 2 else -1]
        for name, other in turns:
            with engines[other].stopped():
                answer = engines[name].ask(arguments.seconds)
            if isinstance(answer, str):
                return "differs", f"{name}, after its first run: {answer}"
            samples[name].append(answer[0])
            last = last | {name: answer[1]}
    if why := difference(last[OURS], last[THEIRS], case):
        return "differs", f"after some runs, {why}"
    return "equal", "", samples if samples[OURS] else {}


def report(rows, versions):
    print(f"{processor()}, cores {cores()}; {', '.join(f'{name} {version}' for name, version in versions.items())}, numpy {np.__version__}, Python ", end="")
    print(f"{platform.python_version()}; {time.strftime('%Y-%m-%d')}; `{' '.join(sys.argv[1:])}`\n")
    for outcome, title in (("differs", "Results differ"), ("only theirs", "Only ONNX Runtime runs"), ("only ours", "Only Anabranch runs"), ("none", "Neither runs")):
        found = [row for row in rows if row.outcome == outcome]
        print(f"{title}: {len(found)} of {len(rows)}\n")
        if found:
            print("| operator | case | threads | reason |\n|---|---|--:|---|")
            for row in found:
                print(f"| {row.case.name} | {row.case.label} | {row.threads} | {row.why} |")
            print()
    timed = [row for row in rows if row.samples]
    if timed:
        print("| family | threads | cases | ours by theirs | at most 1.0 | at most 1.5 |\n|---|--:|--:|--:|--:|--:|")
        for threads in sorted({row.threads for row in timed}):
            for family in [*dict.fromkeys(row.case.family for row in timed), "all"]:
                ratios = [row.ratio() for row in timed if row.threads == threads and family in (row.case.family, "all")]
                shares = " | ".join(f"{sum(ratio <= most for ratio in ratios) / len(ratios):.0%}" for most in (1.0, 1.5))
                print(f"| {family} | {threads} | {len(ratios)} | {statistics.geometric_mean(ratios):.2f} | {shares} |")
        print()
    print("| operator | case | threads | ours, µs | theirs, µs | ours by theirs |\n|---|---|--:|--:|--:|--:|")
    for row in sorted(timed, key=Row.ratio, reverse=True):
        print(f"| {row.case.name} | {row.case.label} | {row.threads} | {row.us(OURS):.1f} | {row.us(THEIRS):.1f} | {row.ratio():.2f} |")


def processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
