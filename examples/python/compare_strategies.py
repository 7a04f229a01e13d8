"""Compares configurations of a model on this machine: predicted beside measured, and each plan's schedule as a picture.

    python examples/python/compare_strategies.py [FOLDER [MODEL.onnx]]

Writes to the folder (`strategies`): `comparison.html`, `profile.svg` of the best configuration's last run, and the placement simulator's schedule of the
same problem under each strategy, `STRATEGY.svg`. Each core is a device of its own, so that there is something to place on.
"""

import sys
from pathlib import Path

import anabranch as ab

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
STRATEGIES = ["auto", "heft", "mite", "cpu"]

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "strategies")
model = Path(sys.argv[2]) if len(sys.argv) > 2 else DATA / "fire.onnx"
folder.mkdir(parents=True, exist_ok=True)

session = ab.Session(model, cpu_devices="core", gpu=False, calibrate=True)
comparison = session.compare(places=STRATEGIES, repeat=10, refine=1)
for row in comparison.rows():
    predicted = f"{row['predicted_ms']:8.3f} ms" if row["predicted_ms"] else "          –"
    same = f" = {row['same_plan_as']}" if row["same_plan_as"] else ""
    print(f"{row['place']:8} predicted {predicted}, measured {row['measured_ms']:8.3f} ms{same}")
print(f"fastest: {comparison.best}")
(folder / "comparison.html").write_text(comparison.html(), encoding="utf-8")

best = comparison.best if comparison.best != "dynamic" else "auto"
(folder / "profile.svg").write_text(ab.Session(model, place=best, cpu_devices="core", gpu=False).profile().svg(), encoding="utf-8")

problem = session.problem()
for strategy in STRATEGIES:
    schedule = ab.place(problem, place=strategy, evaluations=500)
    schedule.save_svg(folder / f"{strategy}.svg")
    print(f"{strategy:8} simulated {schedule.makespan * 1e3:8.3f} ms, no schedule is shorter than {schedule.facts['bound'] * 1e3:.3f} ms")
