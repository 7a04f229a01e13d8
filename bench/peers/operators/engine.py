"""One engine in a process of its own: opens models, runs them once or for a while."""

import os
import time


def serve(name, threads, pipe):
    """Answers requests until the pipe ends: a model with its inputs is opened and run; seconds are spent with runs of it.

    The first answer is the engine's version. A request that fails is answered with a text.
    """
    os.sched_setaffinity(0, cores()[:threads])
    try:
        version, opened = {"anabranch": anabranch, "onnxruntime": onnxruntime}[name](threads)
        pipe.send((version,))
    except Exception as error:
        pipe.send(f"{error}; install the package {name}")
        return
    run = None
    while True:
        try:
            request = pipe.recv()
            if isinstance(request, float):
                pipe.send(batch(run, request))
            else:
                run = opened(*request)
                pipe.send(run())
        except EOFError:
            return
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}".splitlines()[0])


def cores():
    """The cores of this process, those of different physical cores first."""
    order = {}
    for core in sorted(os.sched_getaffinity(0)):
        try:
            with open(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list") as siblings:
                order[core] = siblings.read().split(",")[0].split("-")[0] != str(core)
        except OSError:
            order[core] = False
    return sorted(order, key=lambda core: (order[core], core))


def anabranch(threads):
    import anabranch as ab

    def opened(model, inputs):
        session = ab.Session(model, threads=threads, gpu=False)
        return lambda: list(session.run(inputs).values())

    return getattr(ab, "__version__", "of this checkout"), opened


def onnxruntime(threads):
    import onnxruntime as ort

    ort.set_default_logger_severity(4)

    def opened(model, inputs):
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, inputs)

    return ort.__version__, opened


def batch(run, seconds):
    """Seconds of a run, the mean of those that took about `seconds` together, and the result of the last."""
    count, begun = 0, time.perf_counter()
    while True:
        result = run()
        count += 1
        taken = time.perf_counter() - begun
        if taken >= seconds:
            return taken / count, result
