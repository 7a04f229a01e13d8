"""Graphs of Python functions, run by workers in the manner of Sucuri."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from numbers import Integral
from pathlib import Path
from typing import Any

from . import _arrays, _native
from .errors import InputError
from .views import Rows


@dataclass(eq=False)
class Node:
    """A node of a flow, as `Flow.node` and its kin give it, to be read by later nodes. Its settings may be changed until a run.

    Attributes:
        name: Its name, which no other node of the flow has.
        weight: What it costs, in seconds or in any other unit that all nodes share. Placements use it.
        pin: The number of the only worker that runs it, or None.
        machine: The number of the machine whose workers run it, or None.
        bytes: The size of one operand, which placements and the count of bytes between machines use, or None.
    """

    name: str
    weight: float
    pin: int | None
    machine: int | None
    bytes: int | None
    _flow: Flow
    _number: int
    _kind: str
    _does: Any
    _reads: list[int]
    _is_used: bool = False


class Flow:
    """A dataflow graph whose nodes are functions. A node runs once in each iteration, as soon as what it reads is there; each item of the
    sources is an iteration, and several are under way at a time.

        flow = ab.Flow()
        frames = flow.source("frames", range(1000))
        scale = flow.feeder("scale", 3)
        scaled = flow.node("scaled", lambda frame, scale: frame * scale, frames, scale)
        odd = flow.filter("odd", lambda number: number if number % 2 else None, scaled)
        kept = flow.collect("kept", odd)
        report = flow.run(workers=2)

    Workers are threads. Python lets one of them at a time run Python code: what is to run side by side has to give up the interpreter's
    lock, as NumPy's larger operations do, `Session.run`, hashing, compression, files and sockets.

    A function is called by whichever worker is free, so what it keeps or changes outside must bear several threads; a `serializer` is
    called for one iteration after the other, by one worker or another. ``threading.local`` starts anew in each call, and context variables are
    not the caller's. Operands are not copied: nodes that read the same one share the object.
    """

    def __init__(self) -> None:
        self._nodes: list[Node] = []

    def node(self, name: str, function: Callable[..., Any], *reads: Node, **settings: Any) -> Node:
        """A node that computes an operand of those that it reads, one argument for each.

        Args:
            settings: ``weight``, ``pin``, ``machine`` and ``bytes`` of `Node`.
        """
        return self._declare("node", name, function, reads, settings)

    def filter(self, name: str, function: Callable[..., Any], *reads: Node, **settings: Any) -> Node:
        """A node that may have nothing to deliver: where its function returns None, nothing that depends on it runs in that iteration."""
        return self._declare("filter", name, function, reads, settings)

    def serializer(self, name: str, function: Callable[..., Any], *reads: Node, **settings: Any) -> Node:
        """A node whose function is called for one iteration after the other, in their order."""
        return self._declare("serializer", name, function, reads, settings)

    def source(self, name: str, items: Iterable[Any], **settings: Any) -> Node:
        """A node that delivers items, each of which is an iteration. Every run asks for a new iterator, so that a generator is for one run.
        All sources of a flow must have as many items."""
        return self._declare("source", name, items, (), settings)

    def feeder(self, name: str, operand: Any, **settings: Any) -> Node:
        """A node that delivers the same operand in each iteration."""
        return self._declare("feeder", name, operand, (), settings)

    def collect(self, name: str, read: Node, **settings: Any) -> list[Any]:
        """A list to which runs append what a node delivers, in the order of iterations."""
        kept: list[Any] = []
        self.serializer(name, kept.append, read, **{"weight": 0.0, **settings})
        return kept

    def place(
        self, strategy: str = "sucuri", *, workers: int | None = None, machines: int | None = None
    ) -> dict[str, int]:
        """The number of the worker that a strategy (`strategies`) gives each node of one iteration: an ``allocation`` for `run` with as many
        workers and machines. The result has passed an independent checker.

        Raises:
            PlacementError: If the strategy finds none.
            InputError: If the flow cannot run, or there is no such strategy.
        """
        options = self._options(workers=workers, machines=machines, place=strategy)
        return dict(_native.place_flow(self._declared(lambda _: None), options))

    def run(
        self,
        *,
        workers: int | None = None,
        machines: int | None = None,
        scheduler: str = "stealing",
        place: str | None = None,
        allocation: Mapping[str, int] | None = None,
        window: int | None = None,
        iterations: int | None = None,
        profile: bool = False,
    ) -> FlowReport:
        """Runs the flow to its end. Ctrl-C ends it when the functions that run have returned.

        Args:
            workers: Threads that call functions, of all machines together; one for each processing unit if not given.
            machines: Emulated machines among which the workers are shared out: messages between them are counted. One if not given.
            scheduler: ``central`` (one ready queue), ``central-stealing``, ``local`` (one for each machine) or ``stealing``.
            place: The strategy that gives nodes their machines, for local schedulers; ``sucuri`` if not given.
            allocation: The worker of each node by name, as `place` gives it, in place of a strategy. For local schedulers, too.
            window: Iterations under way at most; four a worker if not given.
            iterations: How many there are, where the flow has no source; one if not given.
            profile: Whether to note what ran when, for the report's chart, trace and times.

        Raises:
            InputError: If the flow or the arguments cannot be run; also if sources have not as many items.
            PlacementError: If the strategy finds no placement.
            Exception: What a function raised, with a note of node and iteration.
        """
        if scheduler.startswith("central") and (place is not None or allocation is not None):
            raise InputError(f"scheduler {scheduler!r} has one queue for all: `place` and `allocation` are for `local` and `stealing`")
        if place is not None and allocation is not None:
            raise InputError("`allocation` says where nodes are: leave `place` out")
        if iterations is not None and any(node._kind == "source" for node in self._nodes):
            raise InputError("the sources say how many iterations there are: leave `iterations` out, or cut them with `itertools.islice`")
        options = self._options(
            workers=workers,
            machines=machines,
            scheduler=scheduler,
            place=place or "sucuri",
            allocation=None if allocation is None else self._in_order(allocation),
            window=window,
            iterations=iterations,
            profile=profile,
        )
        return FlowReport(_native.run_flow(self._declared(self._items), options), profile)

    def weigh(self, report: FlowReport) -> None:
        """Gives nodes the mean seconds that they took for an operand in a profiled run as their weights, and those that delivered none 0. What
        waited for the interpreter's lock is part of it: one worker measures best.

        Raises:
            InputError: If the run was not profiled.
        """
        took = {row["name"]: row["busy_ms"] / max(row["operands"], 1) / 1e3 for row in report._profiled().rows()}
        for node in self._nodes:
            node.weight = took.get(node.name, node.weight)

    def _declare(self, kind: str, name: str, does: Any, reads: tuple[Node, ...], settings: Mapping[str, Any]) -> Node:
        known = {"weight": 1.0, "pin": None, "machine": None, "bytes": None}
        if unknown := settings.keys() - known.keys():
            raise InputError(f"node {name!r} has no setting {min(unknown)!r}: the settings are {', '.join(known)}")
        if kind not in ("source", "feeder") and not callable(does):
            raise InputError(f"node {name!r} has no function but {type(does).__name__}: give the function before what it reads")
        if kind == "source" and not (isinstance(does, Iterable) or hasattr(does, "__getitem__")):
            raise InputError(f"source {name!r} has no items but {type(does).__name__}: give it a list, a range or a generator")
        for read in reads:
            if not isinstance(read, Node) or read._flow is not self:
                raise InputError(f"node {name!r} reads {type(read).__name__}, which is no node of this flow")
        given = {**known, **settings}
        node = Node(name, **given, _flow=self, _number=len(self._nodes), _kind=kind, _does=does, _reads=[read._number for read in reads])
        self._nodes.append(node)
        return node

    @staticmethod
    def _items(node: Node) -> Any:
        """An iterator of a source for one run."""
        items = iter(node._does)
        if items is node._does and node._is_used:
            raise InputError(f"source {node.name!r} is an iterator, which an earlier run has used up: give a list, or another flow")
        node._is_used = True
        return items

    def _declared(self, items: Callable[[Node], Any]) -> list[dict[str, Any]]:
        """The nodes as the compiled part takes them, with these iterators for sources."""
        return [
            {
                "kind": node._kind,
                "name": str(node.name),
                "does": items(node) if node._kind == "source" else node._does,
                "reads": node._reads,
                "weight": float(node.weight),
                **{key: _whole(f"node {node.name!r} has {key}", getattr(node, key), 0) for key in ("pin", "machine", "bytes")},
            }
            for node in self._nodes
        ]

    def _in_order(self, allocation: Mapping[str, int]) -> list[tuple[str, int | None]]:
        names = [node.name for node in self._nodes]
        if missing := [name for name in names if name not in allocation]:
            raise InputError(f"the allocation has no worker for node {missing[0]!r}")
        if unknown := [name for name in allocation if name not in names]:
            raise InputError(f"the allocation has node {unknown[0]!r}, which the flow has not")
        return [(name, _whole(f"the allocation puts node {name!r} on worker", allocation[name], 0)) for name in names]

    @staticmethod
    def _options(**given: Any) -> str:
        counts = ("workers", "machines", "window", "iterations")
        usual = {"scheduler": "stealing", "place": "sucuri", "allocation": None, "profile": False, **dict.fromkeys(counts)}
        options = {**usual, **given}
        for key in counts:
            _whole(f"option `{key}` =", options[key], 1)
        return _arrays.dumps(options)

    def __repr__(self) -> str:
        return f"<Flow of {len(self._nodes)} nodes>"


def _whole(what: str, number: int | None, least: int) -> int | None:
    """The number, if it is one that a count can be."""
    most = 1 << (62 if what.endswith("bytes") else 31)
    if number is not None and not (isinstance(number, Integral) and least <= number < most):
        raise InputError(f"{what} {number!r}: write a whole number from {least} to {most - 1}")
    return number


class FlowReport:
    """What a run of a flow did.

    Attributes:
        facts: ``iterations``, ``seconds``, ``traffic`` between machines (``messages``, ``bytes``), and ``workers``: ``machine``, ``tasks``,
            ``stolen``, ``sleeps``, ``busy_ns`` of each.
    """

    def __init__(self, run: _native.FlowRun, is_profiled: bool) -> None:
        self._run = run
        self._is_profiled = is_profiled
        self.facts: dict[str, Any] = json.loads(run.data())
        nodes = self.facts.pop("nodes")
        self._rows = Rows(
            {
                "name": node["name"],
                "machine": node.get("machine"),
                "operands": node["operands"],
                "busy_ms": node["busy_ns"] / 1e6,
            }
            for node in nodes
        )

    @property
    def seconds(self) -> float:
        """From the start of the first worker to the end of the last."""
        return float(self.facts["seconds"])

    @property
    def tasks(self) -> int:
        """All calls of functions."""
        return sum(worker["tasks"] for worker in self.facts["workers"])

    def rows(self) -> Rows:
        """A row for each node: ``name``, ``machine`` that it was to run on, ``operands`` that it delivered and ``busy_ms`` in its function, both of
        profiled runs alone."""
        return self._rows

    def svg(self) -> str:
        """What each worker did over time, of a profiled run, as SVG."""
        return self._profiled()._run.svg()

    def save_trace(self, path: str | Path) -> None:
        """Writes that as a trace for ui.perfetto.dev."""
        _native.write_text(path, self._profiled()._run.trace())

    def _profiled(self) -> FlowReport:
        if not self._is_profiled:
            raise InputError("nothing was noted of when what ran: run the flow with `profile=True`")
        return self

    def _repr_html_(self) -> str:
        return self.svg() if self._is_profiled else f"<pre>{escape(repr(self))}</pre>"

    def __repr__(self) -> str:
        messages = self.facts["traffic"]["messages"]
        return f"<FlowReport: {self.tasks} tasks in {self.seconds * 1e3:.4g} ms, {messages} messages between machines>"
