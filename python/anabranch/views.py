"""Facts about plans, runs and devices: as rows and dictionaries for programs, and as pages and tables for notebooks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from . import _native


class Rows(list[dict[str, Any]]):
    """Rows of a table: a list of dictionaries with the same keys, ready for ``pandas.DataFrame(rows)``. Notebooks show a table."""

    def _repr_html_(self) -> str:
        columns = list(dict.fromkeys(key for row in self for key in row))
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_shown(row.get(column)))}</td>" for column in columns) + "</tr>" for row in self
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def table(text: str, columns: str) -> Rows:
    """Rows from JSON, with their columns in this order."""
    names = columns.split()
    return Rows({name: row[name] for name in names} for row in json.loads(text))


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_shown, value)) if isinstance(value, list) else str(value)


def _frame(page: str, height: int = 760) -> str:
    """A whole page inside a notebook, apart from the notebook's own."""
    return (
        f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts" style="width:100%;height:{height}px;border:0"></iframe>'
    )


class Devices(Rows):
    """The devices of this machine, CPU devices first: one row each, with ``name``, ``kind``, ``description``, ``memory`` (bytes) and
    ``key``, the name in cost stores.

    Attributes:
        host: The machine as a whole: processor, cores, caches, memory in bytes.
        notes: Notes for people on missing devices and assumptions.
        details: All facts about each device, by its name.
    """

    def __init__(self, text: str) -> None:
        inventory = json.loads(text)
        devices = [("cpu", device) for device in inventory["cpus"]] + [("gpu", device) for device in inventory["gpus"]]
        super().__init__(
            {"name": device["name"], "kind": kind, **{key: device[key] for key in ("description", "memory", "key")}}
            for kind, device in devices
        )
        self.host: dict[str, Any] = inventory["host"]
        self.notes: list[str] = inventory["notes"]
        self.details: dict[str, dict[str, Any]] = {device["name"]: device for _, device in devices}


class Plan:
    """A plan: device and time of each node, transfers, and memory. Times are in milliseconds, sizes in bytes.

    Attributes:
        facts: ``strategy``, ``predicted_ms``, ``predicted_interval_ms`` (nine of ten runs), ``place_ms``, ``traffic_bytes``, ``devices``
            (``device``, ``kind``, ``nodes``, ``busy_ms``, ``peak_bytes``, ``limit_bytes``), and ``whole``. ``whole`` is False if shapes
            depend on computed values; the plan then covers only the nodes before them.
    """

    def __init__(self, plan: _native.Plan) -> None:
        self._plan = plan
        facts, rows, self._file = plan.data()
        self.facts: dict[str, Any] = json.loads(facts)
        self._rows = table(rows, "node op device start_ms end_ms busy_ms cost reason")

    @property
    def predicted_ms(self) -> float:
        """The predicted makespan in milliseconds."""
        return float(self.facts["predicted_ms"])

    def rows(self) -> Rows:
        """One row per node: ``node``, ``op``, ``device``, ``start_ms``, ``end_ms``, ``busy_ms``, ``cost`` (source of the prediction),
        ``reason`` (of the placement)."""
        return self._rows

    def dict(self) -> dict[str, Any]:
        """The plan file as a dictionary: ``nodes``, ``devices`` with their orders, ``blocks``, ``transfers``. Times in microseconds."""
        return dict(json.loads(self._file))

    def save(self, path: str | Path) -> None:
        """Writes the plan file, to read, to edit, and to pass as ``place=`` to a session. Its name must end in ``.json``."""
        _native.write_text(path, self._file)

    def dot(self) -> str:
        """The nodes in the language of Graphviz, coloured by device. Edges between devices are labelled with their bytes."""
        return self._plan.dot()

    def html(self) -> str:
        """A page with the graph, the predicted schedule, the memory and every node's figures. It needs no network."""
        return self._plan.page()

    def _repr_html_(self) -> str:
        return _frame(self.html())

    def __repr__(self) -> str:
        counts = ", ".join(f"{device['nodes']} on {device['device']}" for device in self.facts["devices"])
        return f"<Plan by {self.facts['strategy']}: {counts}; predicted {self.predicted_ms:.4g} ms>"


class Profile:
    """Measured runs, and the events of one of them. Times are in milliseconds, sizes in bytes.

    Attributes:
        report: Output of ``anabranch run --json``: ``latency_ms`` (median, its interval, quantiles), ``predicted_makespan_ms``,
            ``measured_makespan_ms``, ``devices``, ``links``, … and ``samples_ms``, the makespan of each measured run.
    """

    def __init__(self, profile: _native.Profile) -> None:
        self._profile = profile
        report, rows = profile.data()
        self.report: dict[str, Any] = json.loads(report)
        self._rows = table(rows, "kind name on ready_ms start_ms end_ms waited_ms bytes predicted_ms phase")

    @property
    def measured_ms(self) -> float:
        """The median makespan of the measured runs in milliseconds."""
        return float(self.report["measured_makespan_ms"])

    @property
    def predicted_ms(self) -> float | None:
        """The predicted makespan in milliseconds; None before the first run of a model in phases."""
        predicted = self.report["predicted_makespan_ms"]
        return None if predicted is None else float(predicted)

    def rows(self) -> Rows:
        """One row per node, transfer and host operator of the last run, by start: ``kind``, ``name``, ``on`` (device or link),
        ``ready_ms``, ``start_ms``, ``end_ms``, ``waited_ms``, ``bytes``, ``predicted_ms`` (predicted duration; None for host
        operators), ``phase`` (index of its plan; None for host operators, and for models with one phase)."""
        return self._rows

    def dict(self) -> dict[str, Any]:
        """The report and the events."""
        return {"report": self.report, "events": list(self._rows)}

    def svg(self) -> str:
        """The last run over time, predicted and measured, as SVG."""
        return self._profile.svg()

    def html(self) -> str:
        """A page with the graph, the schedule, the memory and every node's figures, predicted and measured. It needs no network."""
        return self._profile.page()

    def save_trace(self, path: str | Path) -> None:
        """Writes the last run in Chrome's trace format, which Perfetto opens."""
        _native.write_text(path, self._profile.trace())

    def _repr_html_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        predicted = "unknown" if self.predicted_ms is None else f"{self.predicted_ms:.4g} ms"
        return f"<Profile: measured {self.measured_ms:.4g} ms, predicted {predicted}>"


class Comparison:
    """Measured configurations of one model. Times are in milliseconds, sizes in bytes.

    Attributes:
        data: Output of ``anabranch compare --json``.
    """

    def __init__(self, text: str, page: str) -> None:
        self.data: dict[str, Any] = json.loads(text)
        self._page = page

    @property
    def best(self) -> str:
        """The placement of the configuration with the shortest measured median."""
        return str(min(self.rows(), key=lambda row: row["measured_ms"])["place"])

    @property
    def failed(self) -> dict[str, str]:
        """The placements without a plan, and the reasons."""
        return {configuration["place"]: why for configuration, why in self.data["failed"]}

    def rows(self) -> Rows:
        """One row per configuration: ``place``, ``order``, ``stream``,
        ``same_plan_as`` (an earlier configuration whose plan is the same),
        ``predicted_ms``, ``measured_ms`` (median), ``low_ms`` and ``high_ms`` (where the median is, with the comparison's confidence),
        ``error_percent`` ((predicted − measured) / measured), ``traffic_bytes``, ``place_ms``, ``same_bits`` and ``within`` (whether the
        outputs are those of the first configuration)."""
        return Rows(map(_row, self.data["outcomes"]))

    def html(self) -> str:
        """A page with charts and tables. It needs no network."""
        return self._page

    def _repr_html_(self) -> str:
        return _frame(self._page)

    def __repr__(self) -> str:
        medians = ", ".join(f"{row['place']} {row['measured_ms']:.4g} ms" for row in self.rows())
        return f"<Comparison of {self.data['model']}: {medians}>"


def _row(outcome: dict[str, Any]) -> dict[str, Any]:
    measured = outcome["measured_ms"]
    return {
        **outcome["configuration"],
        "same_plan_as": outcome.get("same_plan_as"),
        "predicted_ms": outcome["predicted_ms"],
        "measured_ms": measured["median"],
        "low_ms": measured["low"],
        "high_ms": measured["high"],
        "error_percent": outcome["error_percent"],
        "traffic_bytes": outcome["traffic_bytes"],
        "place_ms": outcome["place_ms"],
        "same_bits": outcome["outputs"]["same_bits"],
        "within": outcome["outputs"]["within"],
    }


class Refinement:
    """Rounds of running, learning and placing again. Times are in milliseconds.

    Attributes:
        data: All rounds, with the plans that each round ran.
        plan: The plan that is kept, which the session's runs with these shapes use from now on.
    """

    def __init__(self, text: str, plan: _native.Plan) -> None:
        self.data: dict[str, Any] = json.loads(text)
        self.plan = Plan(plan)

    def rows(self) -> Rows:
        """One row per plan that a round ran: ``round``, ``role`` (``kept so far``, ``proposed`` or ``single device``),
        ``place``, ``predicted_ms`` (with the costs before the round), ``measured_ms`` (median) and ``error_percent``. The plan kept so
        far also has ``node_error_percent``, the prediction error of its nodes as a share of their time. ``verdict`` is the result of
        the round."""
        return Rows(row for entry in self.data["rounds"] for row in _round(entry))

    def _repr_html_(self) -> str:
        return self.rows()._repr_html_()

    def __repr__(self) -> str:
        return f"<Refinement of {len(self.data['rounds'])} rounds: {self.data['measured_ms']['median']:.4g} ms>"


def _round(entry: dict[str, Any]) -> Iterable[dict[str, Any]]:
    plans = [("kept so far", entry["plan"])]
    plans += [("proposed", entry["proposal"])] if entry["proposal"] else []
    plans += [("single device", single) for single in entry["singles"]]
    for at, (role, plan) in enumerate(plans):
        measured = plan["measured_ms"]["median"]
        yield {
            "round": entry["round"],
            "role": role,
            "place": plan["place"],
            "predicted_ms": plan["predicted_ms"],
            "measured_ms": measured,
            "error_percent": 100.0 * (plan["predicted_ms"] - measured) / measured if measured else None,
            "node_error_percent": entry["node_error_percent"] if at == 0 else None,
            "verdict": entry["verdict"] if at == 0 else None,
        }
