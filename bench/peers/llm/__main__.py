"""Measures language models beside onnxruntime-genai and llama.cpp, in turns, and prints Markdown tables.

    python bench/peers/llm DIRECTORY --anabranch target/release/anabranch

Models with random weights are written into the directory first. Needs numpy, onnx, onnxruntime-genai and gguf of PyPI; llama-cpp-python is left out
if it is not there. Each program is a process of its own in every round, on as many cores as it has threads.
"""

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import models

HERE = Path(__file__).resolve().parent
OURS, GENAI, LLAMA = "Anabranch", "onnxruntime-genai", "llama.cpp"
LIMIT = 900  # seconds of processor time for each thread, after which a program is stopped


def main():
    arguments = parse()
    rows, loads = {}, {}
    for name in arguments.sizes:
        folders, gguf = models.make(arguments.directory, name)
        for threads in arguments.threads:
            jobs = list(programs(arguments, folders, gguf, threads))
            for number in range(arguments.rounds):
                for program, level, command in jobs:
                    print(f"round {number + 1}: {name}, {threads} threads, {program} {level}", file=sys.stderr)
                    key = (name, threads, program, level)
                    json_too = ["--json"] if program == OURS else []
                    answer, _, peak = finished(command + benches(arguments) + json_too, threads)
                    for what, rate in rates(program, answer):
                        rows.setdefault((name, threads, what), {}).setdefault((program, level), []).append(rate)
                    once = ["--prompt", "a", "--max-length", "2"] if program == OURS else []
                    _, seconds, least = finished(command + once, threads)
                    loads.setdefault(key, []).append((seconds, peak, least))
    tables(rows, loads)
    if arguments.json:
        found = [{"case": list(case), "program": list(of), "tokens_per_second": all} for case, by in rows.items() for of, all in by.items()]
        found += [{"case": list(key), "first_token_s_and_peak_bytes": all} for key, all in loads.items()]
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the models are")
    parser.add_argument("--anabranch", type=Path, required=True, help="our command, built with --release")
    parser.add_argument("--sizes", type=lambda text: text.split(","), default=list(models.SIZES), help="some of " + ",".join(models.SIZES))
    parser.add_argument("--threads", type=lambda text: [int(number) for number in text.split(",")], default=sorted({1, len(os.sched_getaffinity(0))}))
    parser.add_argument("--bench", action="append", help="P,N: a prompt, and tokens that follow (128,64, 512,0 and 1024,64)")
    parser.add_argument("--rounds", type=int, default=3, help="times that every program is started")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions in each process")
    parser.add_argument("--json", type=Path, help="write all figures into this file")
    arguments = parser.parse_args()
    if unknown := set(arguments.sizes) - set(models.SIZES):
        parser.error(f"--sizes: no sizes are {', '.join(sorted(unknown))}")
    arguments.bench = arguments.bench or ["128,64", "512,0", "1024,64"]
    return arguments


def programs(arguments, folders, gguf, threads):
    """Program, accuracy level and command of each process."""
    count = ["--threads", str(threads)]
    for level, folder in folders.items():
        yield OURS, level, [str(arguments.anabranch), "generate", str(folder), "--no-gpu", "-q", *count]
        yield GENAI, level, [sys.executable, str(HERE / "peer.py"), "genai", str(folder), *count]
    if importlib.util.find_spec("llama_cpp"):
        yield LLAMA, 4, [sys.executable, str(HERE / "peer.py"), "llama.cpp", str(gguf), *count]


def benches(arguments):
    return [part for bench in arguments.bench for part in ("--bench", bench)] + ["--repeat", str(arguments.repeat)]


def finished(command, threads):
    """The standard output of a process, its seconds, and the peak of its memory in bytes."""
    cores = set(sorted(os.sched_getaffinity(0))[:threads])
    begun = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: limit(cores, LIMIT * threads))
    text = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"llm: {' '.join(command)} ended with {child.returncode}")
    return text, time.perf_counter() - begun, used.ru_maxrss * 1024


def limit(cores, seconds):
    os.sched_setaffinity(0, cores)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def rates(program, answer):
    """Each figure of an answer: what it is, and tokens per second of a repetition."""
    answer = json.loads(answer)
    if program == OURS:
        for row in answer["rates"]:
            where = row["tokens"] if row["test"] == "prefill" else row["cache"]
            yield f"{row['test']} {where}", row["tokens_per_second"]["median"]
    else:
        for what, all in answer.items():
            yield what, statistics.median(all)


def tables(rows, loads):
    print("| model | threads | test | program | accuracy level | tokens/s | ours by it |\n|---|--:|---|---|--:|--:|--:|")
    for (name, threads, what), by in rows.items():
        for (program, level), found in by.items():
            rate = statistics.median(found)
            ours = statistics.median(by[OURS, level])
            print(f"| {name} | {threads} | {what} | {program} | {level} | {rate:.1f} | {ours / rate:.2f} |")
    print("\n| model | threads | program | accuracy level | to the first token | peak memory, one token | peak memory, tests |\n|---|--:|---|--:|--:|--:|--:|")
    for (name, threads, program, level), found in loads.items():
        seconds, peak, least = (statistics.median(values) for values in zip(*found))
        print(f"| {name} | {threads} | {program} | {level} | {seconds:.2f} s | {least / 2**20:.0f} MiB | {peak / 2**20:.0f} MiB |")


main()
