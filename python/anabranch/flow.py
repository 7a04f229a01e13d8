"""Graphs of Python functions that worker threads run, modelled on the library Sucuri."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _arrays, _native
from .errors import InputError
from .views import Rows

if TYPE_CHECKING:
    from .cluster.flow import FlowRun
    from .cluster.workers import Workers


@dataclass(eq=False)
class Node:
    """A node of a flow. `Flow.node` and similar methods return it, and later nodes read it. Its settings may be changed until a run.

    Attributes:
        name: Name, unique within the flow.
        weight: Cost, in seconds or in any unit that all nodes share. Placements use it.
        pin: Number of the only worker that runs it, or None.
        machine: Number of the machine whose workers run it, or None.
        bytes: Size of one operand, or None. Placements and the count of bytes between machines use it.
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
    """A dataflow graph whose nodes are functions. A node runs once per iteration, as soon as its operands exist. Each item of the
    sources is an iteration, and several iterations run at a time.

        flow = ab.Flow()
        frames = flow.source("frames", range(1000))
        scale = flow.feeder("scale", 3)
        scaled = flow.node("scaled", lambda frame, scale: frame * scale, frames, scale)
        odd = flow.filter("odd", lambda number: number if number % 2 else None, scaled)
        kept = flow.collect("kept", odd)
        report = flow.run(workers=2)

    Workers are threads, unless a cluster is given. Python lets only one of them run Python code at a time. Functions run in parallel only while they release the
    interpreter's lock, as NumPy's larger operations, `Session.run`, hashing, compression, files and sockets do.

    Any free worker may call a function, so state outside of the function must be thread-safe. A `serializer` is called for one
    iteration after the other, by any worker. ``threading.local`` is empty in each call, and context variables are not those of the
    caller. Operands are not copied: nodes that read the same operand share the object.
    """

    def __init__(self) -> None:
        self._nodes: list[Node] = []

    def node(self, name: str, function: Callable[..., Any], *reads: Node, **settings: Any) -> Node:
        """Adds a node that computes an operand from the nodes that it reads, one argument per node.

        Args:
            settings: ``weight``, ``pin``, ``machine`` and ``bytes`` of `Node`.
        """
        return self._declare("node", name, function, reads, settings)

    def filter(self, name: str, function: Callable[..., Any], *reads: Node, **settings: Any) -> Node:
        """Adds a node that may deliver nothing: if its function returns None, nodes that depend on it do not run in that iteration."""
        return self._declare("filter", name, function, reads, settings)

    def serializer(self, name: str, function: Callable[..., Any], *reads: Node, **settings: Any) -> Node:
        """Adds a node whose function is called for one iteration after the other, in order."""
        return self._declare("serializer", name, function, reads, settings)

    def source(self, name: str, items: Iterable[Any], **settings: Any) -> Node:
        """Adds a node that delivers items; each item is an iteration. Every run needs a new iterator, so a generator serves only one
        run. All sources of a flow must have the same number of items."""
        return self._declare("source", name, items, (), settings)

    def feeder(self, name: str, operand: Any, **settings: Any) -> Node:
        """Adds a node that delivers the same operand in each iteration."""
        return self._declare("feeder", name, operand, (), settings)

    def collect(self, name: str, read: Node, **settings: Any) -> list[Any]:
        """Returns a list to which runs append the operands of a node, in the order of iterations."""
        kept: list[Any] = []
        self.serializer(name, kept.append, read, **{"weight": 0.0, **settings})
        return kept

    def place(
        self,
        strategy: str = "sucuri",
        *,
        workers: int | None = None,
        machines: int | None = None,
        cluster: Workers | None = None,
    ) -> dict[str, int]:
        """Returns the worker that a strategy (`strategies`) assigns to each node of one iteration. The result is an ``allocation`` for
        `run` with the same workers and machines, or the same cluster. An independent checker has verified it.

        Raises:
            PlacementError: If the strategy finds no placement.
            InputError: If the flow cannot run, or the strategy does not exist.
        """
        options = self._options(workers=workers, machines=machines, place=strategy, cluster=cluster)
        return dict(_native.place_flow(self._declared(lambda _: None), options))

    def run(
        self,
        *,
        workers: int | None = None,
        machines: int | None = None,
        cluster: Workers | None = None,
        scheduler: str = "stealing",
        place: str | None = None,
        allocation: Mapping[str, int] | None = None,
        window: int | None = None,
        iterations: int | None = None,
        profile: bool = False,
    ) -> FlowReport:
        """Runs the flow to its end. Ctrl-C ends it when the functions that run have returned.

        Args:
            workers: Threads that call functions, of all machines together. The default is one per processing unit.
            machines: Emulated machines that share the workers. Messages between them are counted. The default is 1.
            cluster: Processes on the nodes of a Ray cluster (`anabranch.cluster.Workers`) that call the functions, instead of threads.
                The nodes are the machines.
            scheduler: ``central`` (one ready queue), ``central-stealing``, ``local`` (one queue per machine) or ``stealing``.
            place: Strategy that assigns nodes to machines, for local schedulers. The default is ``sucuri``.
            allocation: Worker of each node by name, as `place` returns it, instead of a strategy. For local schedulers.
            window: Maximum number of unfinished iterations. The default is four per worker.
            iterations: Number of iterations of a flow without a source. The default is 1.
            profile: Whether to record the times of calls, for the report's chart, trace and times.

        Raises:
            InputError: If the flow or the arguments are invalid, or the sources have different numbers of items.
            PlacementError: If the strategy finds no placement.
            DeviceError: If a process of the cluster dies.
            Exception: The exception that a function raised, with a note of node and iteration.
        """
        if scheduler.startswith("central") and (place is not None or allocation is not None):
            raise InputError(
                f"scheduler {scheduler!r} has one queue for all workers; "
                "use `place` and `allocation` only with `local` and `stealing`"
            )
        if place is not None and allocation is not None:
            raise InputError("`allocation` and `place` are both given; leave one of them out")
        if iterations is not None and any(node._kind == "source" for node in self._nodes):
            raise InputError(
                "the sources determine the number of iterations; "
                "leave `iterations` out, or cut the sources with `itertools.islice`"
            )
        _refuse_other(cluster)
        if cluster is not None and (workers is not None or machines is not None):
            raise InputError("the cluster determines workers and machines; leave `workers` and `machines` out")
        given: dict[str, Any] = {
            "workers": workers,
            "machines": machines,
            "scheduler": scheduler,
            "place": place or "sucuri",
            "allocation": None if allocation is None else self._in_order(allocation),
            "window": window,
            "iterations": iterations,
            "profile": profile,
        }
        if cluster is None:
            return FlowReport(_native.run_flow(self._declared(self._own), self._options(**given)), profile)
        with cluster._run() as run:
            wanted = {read for node in self._nodes if node._kind == "serializer" for read in node._reads}
            nodes = self._declared(lambda node: self._sent(node, run, wanted))
            made = _native.run_flow(nodes, self._options(cluster=cluster, **given))
            return FlowReport(made, profile, {"nodes": cluster.nodes, **run.sent})

    def _own(self, node: Node) -> Any:
        """The function, iterator or operand of a node that is run in this process."""
        return self._items(node) if node._kind == "source" else node._does

    def _sent(self, node: Node, run: FlowRun, wanted: set[int]) -> Any:
        """The same for a run by processes of a cluster. `wanted`: numbers of the nodes whose operands this process needs."""
        if node._kind == "source":
            return run.items(self._items(node))
        if node._kind == "feeder":
            return run.given(node._does)
        if node._kind == "serializer":
            return run.local(node._does)
        return run.remote(node, node._number in wanted)

    def weigh(self, report: FlowReport) -> None:
        """Sets the weight of each node to its mean seconds per operand in a profiled run, and to 0 if it delivered no operand. The
        times include waiting for the interpreter's lock, so one worker measures best.

        Raises:
            InputError: If the run was not profiled.
        """
        took = {row["name"]: row["busy_ms"] / max(row["operands"], 1) / 1e3 for row in report._profiled().rows()}
        for node in self._nodes:
            node.weight = took.get(node.name, node.weight)

    def _declare(self, kind: str, name: str, does: Any, reads: tuple[Node, ...], settings: Mapping[str, Any]) -> Node:
        known = {"weight": 1.0, "pin": None, "machine": None, "bytes": None}
        if unknown := settings.keys() - known.keys():
            raise InputError(f"node {name!r} has no setting {min(unknown)!r}; the settings are {', '.join(known)}")
        if kind not in ("source", "feeder") and not callable(does):
            raise InputError(f"node {name!r} is given {type(does).__name__} instead of a function; give the function before its operands")
        if kind == "source" and not (isinstance(does, Iterable) or hasattr(does, "__getitem__")):
            raise InputError(f"source {name!r} is given {type(does).__name__} instead of items; give it a list, a range or a generator")
        for read in reads:
            if not isinstance(read, Node) or read._flow is not self:
                raise InputError(f"node {name!r} reads {type(read).__name__}, which is not a node of this flow")
        given = {**known, **settings}
        node = Node(name, **given, _flow=self, _number=len(self._nodes), _kind=kind, _does=does, _reads=[read._number for read in reads])
        self._nodes.append(node)
        return node

    @staticmethod
    def _items(node: Node) -> Any:
        """An iterator of a source for one run."""
        items = iter(node._does)
        if items is node._does and node._is_used:
            raise InputError(f"source {node.name!r} is an iterator that an earlier run has consumed; give a list, or make a new flow")
        node._is_used = True
        return items

    def _declared(self, does: Callable[[Node], Any]) -> list[dict[str, Any]]:
        """The nodes as the compiled part takes them. `does`: function, iterator or operand of a node."""
        return [
            {
                "kind": node._kind,
                "name": str(node.name),
                "does": does(node),
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
            raise InputError(f"the allocation has node {unknown[0]!r}, but the flow does not")
        return [(name, _whole(f"the allocation puts node {name!r} on worker", allocation[name], 0)) for name in names]

    @staticmethod
    def _options(cluster: Workers | None = None, **given: Any) -> str:
        _refuse_other(cluster)
        counts = ("workers", "machines", "window", "iterations")
        usual = {"scheduler": "stealing", "place": "sucuri", "allocation": None, "profile": False, **dict.fromkeys(counts)}
        options = {**usual, **given}
        for key in counts:
            _whole(f"option `{key}` =", options[key], 1)
        return _arrays.dumps({**options, "cluster": None if cluster is None else cluster._description()})

    def __repr__(self) -> str:
        return f"<Flow of {len(self._nodes)} nodes>"


def _refuse_other(cluster: Any) -> None:
    if cluster is not None and not hasattr(cluster, "_description"):
        raise InputError(f"`cluster` is {type(cluster).__name__}; give anabranch.cluster.Workers")


def _whole(what: str, number: int | None, least: int) -> int | None:
    """The number, if it is one that a count can be."""
    most = 1 << (62 if what.endswith("bytes") else 31)
    if number is not None and not (isinstance(number, Integral) and least <= number < most):
        raise InputError(f"{what} {number!r}; write a whole number from {least} to {most - 1}")
    return number


class FlowReport:
    """Results and times of a run of a flow.

    Attributes:
        facts: ``iterations``, ``seconds``, ``traffic`` between machines (``messages``, ``bytes``), and ``workers``: ``machine``, ``tasks``,
            ``stolen``, ``sleeps``, ``busy_ns`` of each. Of a run by a cluster also ``cluster``: its ``nodes`` in the order of machines,
            ``messages`` and ``bytes`` that passed between nodes, and ``outside_messages`` and ``outside_bytes`` from and to the caller.
    """

    def __init__(self, run: _native.FlowRun, is_profiled: bool, cluster: Mapping[str, Any] | None = None) -> None:
        self._run = run
        self._is_profiled = is_profiled
        self.facts: dict[str, Any] = json.loads(run.data())
        nodes = self.facts.pop("nodes")
        if cluster is not None:
            self.facts["cluster"] = dict(cluster)
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
        """Seconds from the start of the first worker to the end of the last."""
        return float(self.facts["seconds"])

    @property
    def tasks(self) -> int:
        """Number of calls of functions."""
        return sum(worker["tasks"] for worker in self.facts["workers"])

    def rows(self) -> Rows:
        """One row per node: ``name``, planned ``machine``, delivered ``operands`` and ``busy_ms`` in its function. The last two are
        only of profiled runs."""
        return self._rows

    def svg(self) -> str:
        """Returns a chart of each worker over time as SVG, for a profiled run."""
        return self._profiled()._run.svg()

    def save_trace(self, path: str | Path) -> None:
        """Writes the calls of a profiled run as a trace for ui.perfetto.dev."""
        _native.write_text(path, self._profiled()._run.trace())

    def _profiled(self) -> FlowReport:
        if not self._is_profiled:
            raise InputError("the run recorded no times; run the flow with `profile=True`")
        return self

    def _repr_html_(self) -> str:
        return self.svg() if self._is_profiled else f"<pre>{escape(repr(self))}</pre>"

    def __repr__(self) -> str:
        messages = self.facts["traffic"]["messages"]
        return f"<FlowReport: {self.tasks} tasks in {self.seconds * 1e3:.4g} ms, {messages} messages between machines>"
