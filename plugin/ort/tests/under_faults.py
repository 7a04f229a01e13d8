"""Opens and runs models through the provider while its n-th buffer is refused, for every n.

    python tests/faults/faults.py plugin/ort/tests/under_faults.py libanabranch_ort.so
"""

import os
import sys

import numpy as np
import onnxruntime as ort
from provider import DATA, session

sys.path.insert(0, str(DATA.parent / "faults"))
from faults import Faults


def failures(faults, name):
    """The numbers of failures of opening and of running. After each, the next run is right."""
    reference = dict(np.load(DATA / f"{name}.npz"))
    inputs = {key.removeprefix("in__"): array for key, array in reference.items() if key.startswith("in__")}

    def opened(fallback=False):
        return session(DATA / f"{name}.onnx", {"threads": "1"}, fallback)

    def check_run(own):
        for one, found in zip(own.get_outputs(), own.run(None, inputs)):
            np.testing.assert_allclose(found, reference["out__" + one.name], rtol=1e-4, atol=1e-5)

    def check(before, result, error):
        if error is not None:
            assert "Anabranch: " in str(error) and "memory" in str(error), repr(error)
        if before or result:
            check_run(before or result)

    check_run(opened())
    # ONNX Runtime uses its own provider if ours cannot report what it claims.
    opening = faults.failures("buffer", lambda: None, lambda _: opened(fallback=True), check)
    return opening, faults.failures("buffer", opened, check_run, check)


if __name__ == "__main__":
    library = os.path.realpath(sys.argv[1])
    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library("anabranch", library)
    for name in ["mlp", "unet"]:
        # ONNX Runtime reads the files and supplies the weights.
        opening, running = failures(Faults(library, ""), name)
        assert running > 0, "no buffer was met"
        print(f"{name}: {opening} failures of opening, {running} of running")
    print("as it should be")
