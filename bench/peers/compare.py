"""What the programs answered, beside each other: statistics, ratios round by round, and errors of whole models."""

import math
import statistics
from array import array
from pathlib import Path

OURS, ORT, C_API, TBB, RTEN, TRACT = "Anabranch", "ONNX Runtime", "ONNX Runtime, C API", "oneTBB", "rten", "tract"

# For each question: its title, our series, and the series of each peer with which it is compared.
PAIRS = {
    "chain": [
        ("node of a chain, bare kernel in the executor", "executor/node", [(TBB, "task/node"), (TBB, "lightweight/node")]),
        ("node of a chain, ONNX model in a session", "session/node", [(ORT, "node"), (C_API, "node")]),
        ("chain of 1,000, bare kernel in the executor", "executor/chain1000",
         [(TBB, "task/chain1000"), (TBB, "lightweight/chain1000")]),
        ("chain of 1,000, ONNX model in a session", "session/chain1000", [(ORT, "chain1000"), (C_API, "chain1000")]),
    ],
    "one": [
        ("run of one node, bare kernel in the executor", "executor", [(TBB, "task"), (TBB, "lightweight")]),
        ("run of one node, ONNX model in a session", "session",
         [(ORT, "new outputs"), (ORT, "bound tensors"), (C_API, "new outputs"), (C_API, "bound tensors")]),
    ],
    "hop": [
        ("hop between CPU devices", "executor", [(TBB, "arenas"), (OURS, "std channel"), (OURS, "atomic, spinning")]),
    ],
    "profile": [("profiled ÷ not profiled", "ratio", [(ORT, "ratio")])],
    "throughput": [("time a run, {clients}", "{clients}", [(ORT, "{clients}")])],
}

# Programs that run whole models, and the measures reported for each.
WHOLE = [OURS, ORT, RTEN, TRACT]
MEASURES = ["further", "open", "first", "peak", "growth"]


def compare(jobs, answers):
    """The rows of all questions but that for whole models: ours beside a peer's, as statistics, with the ratio."""
    rows = []
    subjects = [subject for subject in dict.fromkeys(job["subject"] for job in jobs) if subject[0] != "model"]
    for subject in subjects:
        question, model, cores = subject
        found = {program: series(answers.get((subject, program), [])) for program in (OURS, ORT, C_API, TBB)}
        for what, ours, peers in pairs(question, found):
            where = f"{model}, {cores} {'core' if cores == 1 else 'cores'}: " if model else ""
            unit = "ratio" if question == "profile" else "seconds"
            mine = found[OURS].get(ours)
            for program, theirs in peers:
                other = found[program].get(theirs)
                if mine or other:
                    kind = theirs.split("/")[0] if program in (TBB, OURS) or question == "one" else ""
                    name = f"{program}, {kind}" if kind else program
                    row = {"what": where + what, "unit": unit, "peer": name if other else f"{name} (missing)"}
                    rows.append(row | {"ours": statistic(mine), "theirs": statistic(other), "ratio": ratio(mine, other)})
    return rows


def pairs(question, found):
    """A question's comparisons; those of clients are named after the series that there are."""
    for what, ours, peers in PAIRS[question]:
        names = sorted(found[OURS] or found[ORT]) if "{clients}" in ours else [""]
        for name in names:
            filled = [(program, theirs.format(clients=name)) for program, theirs in peers]
            yield what.format(clients="1 thread" if name == "1 threads" else name), ours.format(clients=name), filled


def wholes(models, jobs, answers):
    """Each model on each number of cores: every program's statistics and error, and our ratio to each peer's further runs."""
    found = []
    for subject in dict.fromkeys(job["subject"] for job in jobs if job["subject"][0] == "model"):
        _, name, cores = subject
        programs = {program: series(answers[subject, program]) for program in WHOLE if (subject, program) in answers}
        told = {program: {measure: statistic(samples[measure]) for measure in MEASURES} for program, samples in programs.items()}
        reference = models[name]["outputs"] or [outputs_of(models[name], ORT, cores) / str(at) for at in range(1000)]
        for program in told:
            told[program]["error"] = error(outputs_of(models[name], program, cores), reference)
        ratios = {
            peer: {measure: ratio(programs[OURS][measure], programs[peer][measure]) for measure in MEASURES}
            for peer in WHOLE[1:] if peer in programs and OURS in programs
        }
        found.append({"model": name, "cores": cores, "weights": models[name]["weights"], "programs": told, "ratios": ratios})
    return found


def outputs_of(model, program, cores):
    """Where a program leaves a model's outputs."""
    return Path(model["directory"]) / f"{program}, {cores}"


def error(directory, reference):
    """The largest difference of an output from its reference, in parts of 1e-4 of the greatest of the reference and 1e-5."""
    worst = None
    for at, file in enumerate(map(Path, reference)):
        made = directory / str(at)
        if not file.exists():
            continue
        if not made.exists():
            return float("inf")
        made, known = (array("f", path.read_bytes()) for path in (made, file))
        if len(made) != len(known):
            return float("inf")
        bound = 1e-4 * max((abs(b) for b in known if math.isfinite(b)), default=0) + 1e-5
        largest = max((difference(a, b) for a, b in zip(made, known)), default=0.0)
        worst = max(worst or 0.0, largest / bound)
    return worst


def difference(a, b):
    """Of two numbers; those that are not finite must be the same."""
    if math.isfinite(a) and math.isfinite(b):
        return abs(a - b)
    return 0.0 if a == b or (a != a and b != b) else float("inf")


def series(rounds):
    """Samples by name and round."""
    found = {}
    for answer in rounds:
        for name, samples in answer["samples"].items():
            found.setdefault(name, {})[answer["round"]] = samples
        facts = answer["facts"]
        if "peak" in facts:
            found.setdefault("peak", {})[answer["round"]] = [facts["peak"]]
            found.setdefault("growth", {})[answer["round"]] = [facts["peak"] - facts["peak_before"]]
    return found


def statistic(rounds):
    if not rounds:
        return None
    pooled = sorted(sample for samples in rounds.values() for sample in samples)
    quartile = lambda part: pooled[min(len(pooled) - 1, int(part * len(pooled)))]
    return {
        "median": statistics.median(pooled), "low": quartile(0.25), "high": quartile(0.75), "least": pooled[0],
        "samples": len(pooled), "rounds": [statistics.median(samples) for samples in rounds.values()],
    }


def ratio(mine, other):
    """The median, least and greatest of the rounds' ratios: what drifts from round to round is in both."""
    if not mine or not other:
        return None
    rounds = [[statistics.median(samples[number]) for samples in (mine, other)] for number in mine if number in other]
    ratios = sorted(a / b for a, b in rounds if b != 0)
    return {"median": statistics.median(ratios), "least": ratios[0], "greatest": ratios[-1]} if ratios else None
