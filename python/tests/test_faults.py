"""Buffers that are refused, reads that fail and functions that raise, at every place."""

import gc
import itertools
import sys
import weakref
from pathlib import Path

import pytest
from conftest import DATA

import anabranch as ab

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "faults"))
from faults import started


@pytest.mark.skipif(sys.platform != "linux", reason="faults.c stands in front of glibc")
@pytest.mark.parametrize(("name", "file"), [("mlp_external", "mlp_external.data"), ("unet", "unet.onnx")])
def test_whatever_buffer_or_read_fails_it_is_an_exception_and_the_next_run_is_right(name, file, tmp_path):
    program = Path(__file__).with_name("under_faults.py")
    done = started(program, DATA / f"{name}.onnx", DATA / f"{name}.npz", DATA / file, folder=tmp_path)
    if done is None:
        pytest.skip("no C compiler")
    assert done.returncode == 0 and done.stdout.endswith("as it should be\n"), done.stdout + done.stderr


@pytest.mark.parametrize("scheduler", ["central", "stealing"])
def test_whatever_call_of_a_function_raises_it_is_raised_and_the_next_run_is_right(scheduler):
    items = 12
    calls, failing, alive = itertools.count(), None, weakref.WeakSet()

    class Operand:
        def __init__(self, number):
            self.number = number
            alive.add(self)

    class Operands:
        def __iter__(self):
            return map(Operand, range(items))

    def work(operand):
        if next(calls) == failing:
            raise OSError(f"call {failing} was made to fail")
        return Operand(operand.number + 1)

    flow = ab.Flow()
    source = flow.source("numbers", Operands())
    kept = flow.collect("kept", flow.node("second", work, flow.node("first", work, source)))
    for failing in range(2 * items):
        calls = itertools.count()
        with pytest.raises(OSError, match=f"call {failing} was") as caught:
            flow.run(workers=2, scheduler=scheduler)
        assert any("first" in note or "second" in note for note in caught.value.__notes__)
        del caught
        kept.clear()
        gc.collect()
        assert not alive, f"{len(alive)} operands are kept after call {failing} failed"
        failing = None
        flow.run(workers=2, scheduler=scheduler)
        assert [operand.number for operand in kept] == [number + 2 for number in range(items)]
        kept.clear()
