"""The placement simulator: places, simulates and draws task graphs on platforms that this machine need not have."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _arrays, _native
from .errors import InputError
from .views import Rows, table

_FORMAT = {"format": "anabranch-problem", "version": 1}


class Schedule:
    """A graph that was placed and simulated. An independent checker has verified the result. Times are in the problem's unit
    (``facts["time_unit"]``).

    Attributes:
        facts: Output of ``anabranch simulate --json``: ``makespan``, ``bound`` (no schedule is shorter), ``gap``, ``slr``, ``speedup``,
            ``traffic``, ``utilisation``, ``devices``, …
    """

    def __init__(self, schedule: _native.Schedule, names: Sequence[Any] | None) -> None:
        facts, tasks, transfers = schedule.data()
        self.facts: dict[str, Any] = json.loads(facts)
        self._rows = table(tasks, "task name device start end")
        self._transfers = table(transfers, "task name from to bytes start end")
        self._names = names
        self._svg = schedule.svg()

    @property
    def makespan(self) -> float:
        """End of the last task."""
        return float(self.facts["makespan"])

    @property
    def placement(self) -> dict[Any, str]:
        """Device of each task, by the nodes of a networkx graph, otherwise by the number in the graph's list."""
        keys = self._names if self._names is not None else range(len(self._rows))
        return {key: row["device"] for key, row in zip(keys, self._rows, strict=True)}

    def rows(self) -> Rows:
        """One row per task: ``task`` (its number), ``name``, ``device``, ``start``, ``end``."""
        return self._rows

    def transfers(self) -> Rows:
        """One row per transfer: ``task`` that produced the data, ``name``, ``from``, ``to``, ``bytes``, ``start``, ``end``."""
        return self._transfers

    def svg(self) -> str:
        """Chart of each device over time, with its number of ready tasks, as SVG."""
        return self._svg

    def save_svg(self, path: str | Path) -> None:
        """Writes the chart to a file."""
        _native.write_text(path, self._svg)

    def _repr_html_(self) -> str:
        return self._svg

    def __repr__(self) -> str:
        facts = self.facts
        return f"<Schedule of {facts['problem']} by {facts['strategy']}: makespan {self.makespan:.6g}>"


def strategies() -> dict[str, str]:
    """The strategies, and a line on what each does."""
    return dict(_native.strategies())


def place(
    graph: Any,
    platform: Any = None,
    place: str = "heft",
    *,
    order: str = "pct",
    seed: int = 0,
    evaluations: int | None = None,
    send_ops: float = 0.0,
    contention: bool = False,
    memory_rule: str | None = None,
) -> Schedule:
    """Places a task graph on a platform, and simulates it.

    Args:
        graph: A path to a file (CSV of Laich 2017, our JSON, WfCommons, or a whole problem); a dictionary in our JSON's form, such as
            `Session.problem` gives; or a directed networkx graph. Its nodes may have ``operations``, ``memory`` (bytes that stay),
            ``allowed`` (kinds of devices), ``pinned`` (a device's number), ``name``, and ``times``: by device's name or in the
            platform's order, None where it cannot run. Its edges may have ``bytes``. Edges that leave a node and share a ``datum``
            are one tensor with several readers, sent to each device once.
        platform: A path to a file (CSV of Laich 2017 or our JSON), a dictionary in our JSON's form, or a list of devices:
            dictionaries with ``name``, ``kind`` (``cpu``, ``gpu``, ``tpu``, ``other``), ``speed`` (operations a time unit) and
            ``memory`` (bytes), or kinds alone. None where the graph brings its own.
        place: The strategy; ``exact:20`` is ``exact`` with a time limit of 20 seconds.
        order: Which of a device's ready tasks runs next: ``pct``, ``msr``, ``fifo``, ``frugal`` or ``planned``. Under ``pct``, ``auto``
            and ``exact`` keep the order that they found.
        seed: Of the search ``auto``.
        evaluations: Placements that ``auto`` simulates; as many as take a minute at most if not given.
        send_ops: Operations that a send takes on the sending device.
        contention: Whether a link carries one transfer at a time.
        memory_rule: What counts against a device's memory: ``resident``, ``size_estimate`` or ``ignore``; what the graph says if not
            given.

    Raises:
        InputError: If graph or platform are not of their form, or no placement is found.
    """
    names = None
    if hasattr(graph, "edges") and hasattr(graph, "nodes"):
        graph, names = _networkx(graph, platform)
        if "platform" in graph:
            platform = None
    options = {
        "place": place,
        "order": order,
        "seed": seed,
        "evaluations": evaluations,
        "send_ops": send_ops,
        "contention": contention,
        "memory_rule": memory_rule,
    }
    file = None if platform is None else _file("platform", _platform(platform))
    return Schedule(_native.place(_file("graph", graph), file, _arrays.dumps(options)), names)


def _file(what: str, source: Any) -> tuple[str, bytes | None]:
    """A file by its path; a dictionary as a file with its JSON."""
    if isinstance(source, Mapping):
        return what, _arrays.dumps({**_FORMAT, **source}).encode()
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(f"the {what} must be a path, a dictionary or a networkx graph, not {type(source).__name__}")
    return os.fspath(source), None


def _platform(source: Any) -> Any:
    """Devices in a list as a platform whose links take no time."""
    if not isinstance(source, (list, tuple)):
        return source
    counted: dict[str, int] = {}
    devices = []
    for device in source:
        entry = {"kind": device} if isinstance(device, str) else dict(device)
        kind = entry.get("kind", "cpu")
        number = counted[kind] = counted.get(kind, -1) + 1
        devices.append({"name": f"{kind}{number}", "kind": kind, **entry})
    return {"platform": {"devices": devices}}


def _networkx(graph: Any, platform: Any) -> tuple[dict[str, Any], list[Any]]:
    """A directed graph in our JSON's form, and its nodes in the order of the tasks. With times, the platform is part of it."""
    if not graph.is_directed():
        raise InputError("a task graph must be directed; give a networkx.DiGraph")
    nodes = list(graph.nodes)
    number = {node: at for at, node in enumerate(nodes)}
    tasks = [_task(node, graph.nodes[node]) for node in nodes]
    data: dict[Any, dict[str, Any]] = {}
    for at, (producer, consumer, edge) in enumerate(graph.edges(data=True)):
        key = (producer, "datum", edge["datum"]) if "datum" in edge else (producer, "edge", at)
        datum = data.setdefault(key, {"producer": number[producer], "bytes": int(edge.get("bytes", 0)), "consumers": []})
        datum["consumers"].append(number[consumer])
    document: dict[str, Any] = {"graph": {"tasks": tasks, "data": list(data.values())}}
    if graph.name:
        document["name"] = str(graph.name)
    times = [graph.nodes[node].get("times") for node in nodes]
    if any(row is not None for row in times):
        document |= _with_times(nodes, times, _platform(platform))
    return document, nodes


def _task(node: Any, attributes: Mapping[str, Any]) -> dict[str, Any]:
    known = ("allowed", "pinned", "memory", "operations")
    return {"name": str(attributes.get("name", node)), **{key: attributes[key] for key in known if key in attributes}}


def _with_times(nodes: list[Any], times: list[Any], platform: Any) -> dict[str, Any]:
    if not isinstance(platform, Mapping):
        raise InputError("tasks with `times` need the platform as a dictionary or a list of devices")
    names = [device["name"] for device in platform["platform"]["devices"]]
    missing = [node for node, row in zip(nodes, times, strict=True) if row is None]
    if missing:
        raise InputError(f"node {missing[0]!r} has no `times`, but other nodes do; give all nodes times, or none")
    rows = [[row.get(name) for name in names] if isinstance(row, Mapping) else list(row) for row in times]
    return {"platform": platform["platform"], "times": rows}
