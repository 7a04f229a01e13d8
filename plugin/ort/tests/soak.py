"""Opens, runs and closes sessions of the provider until it is terminated, for `scripts/soak`.

    scripts/soak 3600 target/venv/bin/python plugin/ort/tests/soak.py target/debug/libanabranch_ort.so

Each session runs one of the models of tests/data on one or two threads, from one or two callers at once. Every output is
compared with the model's reference, and with the bits of the session's first run. The program ends with an error at the
first one that differs.
"""

import itertools
import os
import signal
import sys
import threading

import numpy as np
import onnxruntime as ort
from provider import DATA, session

MODELS = ["mlp", "gru", "lstm", "decoder", "fire"]
RUNS = 10


def right(found, expected, first):
    bound = 1e-4 * np.abs(expected).max(initial=0) + 1e-5
    close = found.shape == expected.shape and np.abs(found - expected).max(initial=0) <= bound
    return close and np.array_equal(found, first)


def one_session(name, threads, callers):
    """Opens a session, runs it from several threads, and closes it. Returns the number of runs."""
    reference = dict(np.load(DATA / f"{name}.npz"))
    own = session(DATA / f"{name}.onnx", {"threads": str(threads)})
    inputs = {one.name: reference["in__" + one.name] for one in own.get_inputs()}
    expected = [reference["out__" + one.name] for one in own.get_outputs()]
    first = own.run(None, inputs)
    wrong = []

    def call():
        try:
            for _ in range(RUNS):
                wrong.extend("other bits" for row in zip(own.run(None, inputs), expected, first) if not right(*row))
        except Exception as error:
            wrong.append(error)

    others = [threading.Thread(target=call) for _ in range(callers - 1)]
    [other.start() for other in others]
    call()
    [other.join() for other in others]
    assert not wrong, f"{name} on {threads} threads, {callers} callers: {wrong}"
    return 1 + RUNS * callers


if __name__ == "__main__":
    ort.set_default_logger_severity(3)
    ort.register_execution_provider_library("anabranch", os.path.abspath(sys.argv[1]))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    runs, sessions = 0, 0
    try:
        for case in itertools.cycle(itertools.product(MODELS, (1, 2), (1, 2))):
            runs += one_session(*case)
            sessions += 1
    except KeyboardInterrupt:
        print(f"{sessions} sessions, {runs} runs, all right", file=sys.stderr)
