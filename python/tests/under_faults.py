"""Opens and runs a model while the n-th buffer or read of the package fails, for every n.

    python tests/faults/faults.py python/tests/under_faults.py MODEL REFERENCE FILE

FILE holds the weights.
"""

import sys
from pathlib import Path

import numpy as np

import anabranch as ab
from anabranch import _native

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "faults"))
from faults import KINDS, Faults

model, reference, file = sys.argv[1:]
members = dict(np.load(reference))
inputs = {name.removeprefix("in__"): array for name, array in members.items() if name.startswith("in__")}
expected = {name.removeprefix("out__"): array for name, array in members.items() if name.startswith("out__")}


def opened(_=None):
    return ab.Session(model, gpu=False, threads=1, cpu_devices="machine")


def check_run(session):
    outputs = session.run(inputs)
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-4, atol=1e-5)


def check_error(kind, error):
    """The error is the package's own, and says what failed."""
    assert isinstance(error, ab.AnabranchError), repr(error)
    if kind == "buffer":
        # A constant of the file, the copy of an input, or any other buffer.
        assert isinstance(error, (ab.errors.ModelError, ab.errors.InputError, ab.errors.MemoryLimitError)), repr(error)
        assert "memory" in str(error), repr(error)
    else:
        assert isinstance(error, ab.errors.ModelError) and Path(file).name in str(error), repr(error)


def checker(kind):
    """What came of it: an error of the package, and a session whose next run is right."""

    def check(before, result, error):
        if error is not None:
            check_error(kind, error)
        if before or result:
            check_run(before or result)

    return check


faults = Faults(_native.__file__, file)
check_run(opened())
for kind in KINDS:
    opening = faults.failures(kind, lambda: None, opened, checker(kind))
    running = faults.failures(kind, opened, check_run, checker(kind))
    assert opening + running > 0, f"no {kind} was met"
    print(f"{kind}: {opening} failures of opening, {running} of running")
print("as it should be")
