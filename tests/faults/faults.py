"""Buffers and reads of one library that fail where a test says: `faults.c` for tests in Python.

A test starts a program by `started`, or by the command below; the program names what fails by `Faults`.

    python tests/faults/faults.py PROGRAM.py ARGUMENTS
"""

import ctypes
import gc
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KINDS = ["buffer", "read"]


def started(program, *arguments, folder):
    """Runs a program of Python with `faults.c` in front of the C library.

    Returns the finished process, or None if there is no compiler.
    """
    if shutil.which("cc") is None:
        assert "ANABRANCH_REQUIRE_TOOLS" not in os.environ, "no C compiler (Debian package gcc)"
        return None
    library = Path(folder) / "faults.so"
    compiler = ["cc", "-std=gnu11", "-O1", "-shared", "-fPIC"]
    subprocess.run([*compiler, HERE / "faults.c", "-o", library, "-lpthread", "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "RUST_BACKTRACE": "0"}
    command = [sys.executable, program, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


class Faults:
    """The faults of the library at a path, and of its reads of a file. The program must be one that `started` runs."""

    def __init__(self, library, file):
        self.c = ctypes.CDLL(None)
        self.c.faults_arm.argtypes = [ctypes.c_int, ctypes.c_long]
        self.c.faults_live.restype = ctypes.c_long
        self.c.faults_watch(os.fsencode(os.path.realpath(library)), os.fsencode(os.path.realpath(file)))

    def live(self):
        """The number of buffers that the library has not given back."""
        gc.collect()
        return self.c.faults_live()

    def failures(self, kind, prepare, work, check):
        """Does `work(prepare())` while its n-th buffer or read fails, for every n until none fails.

        Returns how often the work failed. `check(subject, result, error)` then meets no fault; the error is None if
        the work went well. After that, the library must have given back all buffers.
        """
        live, failed = self.live(), 0
        for n in itertools.count():
            met, error = self._once(kind, n, prepare, work, check)
            failed += error
            assert met or not error, f"{kind} {n}: an error without a fault"
            assert self.live() == live, f"{kind} {n}: {self.live() - live} buffers are left"
            if not met:
                return failed

    def _once(self, kind, n, prepare, work, check):
        """Whether the fault was met, and whether the work failed. All objects end with this call."""
        subject, result, error = prepare(), None, None
        self.c.faults_arm(KINDS.index(kind), n)
        try:
            result = work(subject)
        except Exception as problem:
            error = problem.with_traceback(None)
        met = self.c.faults_met()
        check(subject, result, error)
        return met, error is not None


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        done = started(*sys.argv[1:], folder=folder)
    if done is None:
        print("not run: no C compiler\nas it should be")
    else:
        sys.stdout.write(done.stdout)
        sys.stderr.write(done.stderr)
        sys.exit(done.returncode)
