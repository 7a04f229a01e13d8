"""ONNX Runtime's side of the comparison with other runtimes: one question a call, all samples as one line of JSON.

`run` beside this file calls it with the Python of its own environment, in turns with the other programs. Samples are seconds
of one call or node; what is compared is measured batch by batch in turn. Options are ONNX Runtime's defaults (all graph
optimisations, spinning threads) except for the number of threads, which `--threads` gives.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

BATCH = 2e-4  # seconds of a batch: less than a time slice, so that most batches are not interrupted on a busy machine
BATCHES = (5, 501)
PERIODS = 5
LENGTHS = (1000, 100)


def main():
    arguments = parse()
    questions = {
        "chain": chain,
        "one": one,
        "profile": profile,
        "model": first_and_further,
        "throughput": throughput,
        "copies": copies,
    }
    samples, facts = questions[arguments.question](arguments)
    print(json.dumps({"samples": samples, "facts": facts}))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=["chain", "one", "profile", "model", "throughput", "copies"])
    parser.add_argument("path", type=Path, help="the model; for chain and one, the directory with chain*.onnx")
    parser.add_argument("--threads", type=int, default=1, help="threads within an operator")
    parser.add_argument("--clients", type=int, default=8, help="Python threads that run at the same time")
    parser.add_argument("--outputs", type=Path, help="model: directory for the outputs' elements, a file for each position")
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds that all measured calls should take")
    return parser.parse_args()


def chain(arguments):
    """A node of a chain of tiny nodes: the difference of two lengths, bound tensors, so that no copy is measured."""
    files = [arguments.path / f"chain{length}.onnx" for length in LENGTHS]
    for file, length in zip(files, LENGTHS):
        if (nodes := optimised_nodes(file)) != length:
            raise SystemExit(f"ort.py: of {length} nodes {nodes} are left after optimisation: it is another chain")
    sessions = [open_session(file, 1) for file in files]
    bound = [bind(session, inputs_of(file)) for session, file in zip(sessions, files)]
    long, short = in_turn([runner(*pair) for pair in zip(sessions, bound)], arguments.seconds)
    span = LENGTHS[0] - LENGTHS[1]
    samples = {"node": [(a - b) / span for a, b in zip(long, short)], "chain1000": long, "chain100": short}
    return samples, {}


def one(arguments):
    """A whole run of one tiny node, as users call it and with bound tensors."""
    file = arguments.path / "chain1.onnx"
    session = open_session(file, 1)
    inputs = inputs_of(file)
    calls = [lambda: session.run(None, inputs), runner(session, bind(session, inputs))]
    times = in_turn(calls, arguments.seconds)
    return dict(zip(["new outputs", "bound tensors"], times)), {}


def profile(arguments):
    """A run, profiled and not: a session each, because profiling is a session's."""
    with tempfile.TemporaryDirectory() as directory:
        plain = open_session(arguments.path, arguments.threads)
        prefix = os.path.join(directory, "profile")
        profiled = open_session(arguments.path, arguments.threads, profile_file_prefix=prefix, enable_profiling=True)
        inputs = inputs_of(arguments.path)
        calls = [lambda: plain.run(None, inputs), lambda: profiled.run(None, inputs)]
        times = in_turn(calls, arguments.seconds)
        profiled.end_profiling()
    samples = {"ratio": [b / a for a, b in zip(*times)], "plain": times[0], "profiled": times[1]}
    return samples, {}


def first_and_further(arguments):
    """From opening a model to its first result, the peak of memory until then, and further runs."""
    inputs = inputs_of(arguments.path)
    before = peak_memory()
    started = time.perf_counter()
    session = open_session(arguments.path, arguments.threads)
    opened = time.perf_counter() - started
    session.run(None, inputs)
    first = time.perf_counter() - started
    peak = peak_memory()
    (further,) = in_turn([lambda: session.run(None, inputs)], arguments.seconds)
    for at, output in enumerate(session.run(None, inputs)):
        if output.dtype == np.float32:
            output.tofile(arguments.outputs / str(at))
    return {"open": [opened], "first": [first], "further": further}, {"peak_before": before, "peak": peak}


def throughput(arguments):
    """Seconds for each finished run on one session, from one thread and from several, period by period in turn."""
    session = open_session(arguments.path, arguments.threads)
    inputs = inputs_of(arguments.path)
    session.run(None, inputs)
    period = arguments.seconds / (2 * PERIODS)
    samples = {}
    for _ in range(PERIODS):
        for clients in (1, arguments.clients):
            samples.setdefault(f"{clients} threads", []).append(flood([session], inputs, clients, period))
    return samples, {}


def copies(arguments):
    """Seconds for each finished run of several sessions, each used from a thread of its own."""
    sessions = [open_session(arguments.path, arguments.threads) for _ in range(arguments.clients)]
    inputs = inputs_of(arguments.path)
    for session in sessions:
        session.run(None, inputs)
    return {"period": [flood(sessions, inputs, len(sessions), arguments.seconds / PERIODS) for _ in range(PERIODS)]}, {}


def flood(sessions, inputs, clients, period):
    """All clients, each on a session of several in turn, run as often as they can until the period is over; seconds for each finished run."""
    counts = [0] * clients
    started = time.perf_counter()

    def client(number):
        while counts[number] == 0 or time.perf_counter() - started < period:
            sessions[number % len(sessions)].run(None, inputs)
            counts[number] += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - started) / sum(counts)


def open_session(file, threads, **further):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    for name, value in further.items():
        setattr(options, name, value)
    return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def optimised_nodes(file):
    """The number of nodes that are left after ONNX Runtime's optimisations."""
    import onnx

    with tempfile.TemporaryDirectory() as directory:
        optimised = os.path.join(directory, "optimised.onnx")
        open_session(file, 1, optimized_model_filepath=optimised, log_severity_level=3)
        return len(onnx.load(optimised).graph.node)


def runner(session, bound):
    return lambda: session.run_with_iobinding(bound)


def bind(session, inputs):
    """Inputs and outputs that stay where they are between runs."""
    bound = session.io_binding()
    for name, array in inputs.items():
        bound.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
    for output, array in zip(session.get_outputs(), session.run(None, inputs)):
        bound.bind_ortvalue_output(output.name, ort.OrtValue.ortvalue_from_numpy(array))
    return bound


def inputs_of(file):
    """The inputs in the .npz beside the model, members in__NAME."""
    with np.load(file.with_suffix(".npz")) as members:
        return {name[4:]: members[name] for name in members.files if name.startswith("in__")}


def in_turn(calls, seconds):
    """Seconds of one call each, batch by batch in turn."""
    counts = [calibrate(call) for call in calls]
    samples = [[] for _ in calls]
    started = time.perf_counter()
    for number in range(BATCHES[1]):
        if number >= BATCHES[0] and time.perf_counter() - started > seconds:
            break
        for call, count, into in zip(calls, counts, samples):
            into.append(batch(call, count) / count)
    return samples


def calibrate(call):
    """The number of calls that makes a batch, after calls that warm everything up."""
    batch(call, 2)
    count = 1
    while batch(call, count) < BATCH:
        count *= 2
    return count


def batch(call, count):
    started = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - started


def peak_memory():
    """The most bytes that this process has had in memory so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("ort.py: /proc/self/status has no VmHWM")


if __name__ == "__main__":
    main()
