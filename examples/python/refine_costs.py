"""Learns what a model's nodes cost on this machine, and shows predictions coming nearer to what is measured.

    python examples/python/refine_costs.py [COSTS.json [MODEL.onnx]]

The first session knows nothing and assumes rates; what it learns goes into the cost store, with which a second one predicts.
"""

import sys
import tempfile
from pathlib import Path

import anabranch as ab

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"

costs = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "costs.json"
model = Path(sys.argv[2]) if len(sys.argv) > 2 else DATA / "convnet.onnx"


def error(predicted_ms, measured_ms):
    """By which factor a prediction is off: 1 where it is right."""
    return max(predicted_ms / measured_ms, measured_ms / predicted_ms)


session = ab.Session(model, place="auto", cpu_devices="core", gpu=False, costs=costs)
refinement = session.refine(rounds=4, repeat=5)
kept = [row for row in refinement.rows() if row["role"] == "kept so far"]
for row in kept:
    off = error(row["predicted_ms"], row["measured_ms"])
    print(
        f"round {row['round']}: predicted {row['predicted_ms']:.3f} ms, measured {row['measured_ms']:.3f} ms (off by {off:.2f} ×), "
        f"nodes off by {row['node_error_percent']:.0f} %; {row['verdict']}"
    )
session.save_costs()

again = ab.Session(model, place="auto", cpu_devices="core", gpu=False, costs=costs).profile()
print(f"a new session: predicted {again.predicted_ms:.3f} ms, measured {again.measured_ms:.3f} ms")
# Its predictions rest on the measurements of the first session.
basis = again.report["costs"]
print(f"predictions of {basis['measured']} nodes rest on measured times, of {basis['assumed']} on assumed rates")
assert basis["measured"] > 0 and basis["assumed"] == 0
