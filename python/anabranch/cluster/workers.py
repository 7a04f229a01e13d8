"""Processes on the nodes of a cluster that call the functions of flows and run the commands of graphs."""

from __future__ import annotations

import contextlib
import secrets
import statistics
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing import AuthenticationError
from types import TracebackType
from typing import Any

from .. import _native
from ..errors import DeviceError, InputError
from . import _host
from . import platform as _platform
from ._channel import Address, Packet, Wire
from ._worker import WorkerHost
from .flow import FlowRun
from .platform import Platform


_GLANCE = 0.1
"""Seconds between looks whether a run was cancelled."""


class Workers:
    """Processes on the nodes of a Ray cluster, each of which calls functions of a flow as one of its workers. As a context manager, they
    end with its block.

        with ab.cluster.Workers(platform, workers=8) as workers:
            report = flow.run(cluster=workers, place="heft")

    The machines of the flow are the nodes, ``workers.nodes``, in this order. Nodes and filters of the flow run in these processes.
    Sources, serializers and `collect` run in the calling process, as in a run without a cluster: they may have a state.

    Functions and values are pickled by Ray's cloudpickle, and pass over connections of their own from process to process. A value
    stays where it was made until another worker reads it. A module that functions come from must be on all nodes.

    If a process or a node dies, the run ends with a `DeviceError` that names it and the flow's node. The next run starts the process
    again, or goes on without the node.

    Args:
        platform: Nodes to use, and the links that placements assume. Without it they are measured first.
        workers: Number of processes, of all nodes together. The default is one per CPU that Ray counts.
        hang: Seconds without an answer after which a process counts as dead. A function may take longer.
        timeout: Longest time in seconds to wait for a process to start.

    Attributes:
        events: Lines about nodes that were left out, because they have died or are not in the cluster.

    Raises:
        InputError: If an argument is invalid.
        DeviceError: If a process cannot be started.
    """

    def __init__(self, platform: Platform | None = None, *, workers: int | None = None, hang: float = 30.0, timeout: float = 120.0) -> None:
        if platform is not None and not isinstance(platform, Platform):
            raise InputError("`platform` is not a Platform; Platform.load reads a file")
        if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
            raise InputError(f"option `workers` = {workers!r}: give a whole number of at least 1")
        for name, seconds in (("hang", hang), ("timeout", timeout)):
            _platform.seconds(name, seconds)
        self._ray = _host.ray_module()
        self.platform = platform or Platform.measure(timeout=timeout)
        self.events: list[str] = [] if platform else list(self.platform.events)
        self._hang, self._timeout, self._wanted, self._key = hang, timeout, workers, secrets.token_bytes(32)
        self._running = threading.Lock()
        self._closed = False
        self._links: list[Link] = []
        self._start()

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes, in the order of the flow's machines."""
        return list(dict.fromkeys(link.node for link in self._links))

    def __len__(self) -> int:
        return len(self._links)

    def close(self) -> None:
        """Ends the processes."""
        self._closed = True
        self._drop(self._links)
        self._links = []

    def __enter__(self) -> Workers:
        self._refuse_if_closed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Workers: {len(self)} on {', '.join(self.nodes)}>"

    def _start(self) -> None:
        """Starts the processes that are missing, on the nodes that are alive."""
        kept = [link for link in self._links if link.answers()]
        self._drop(link for link in self._links if link not in kept)
        self._links, gone = kept, set[str]()
        self.events += [line for line in self.platform.absent() if line not in self.events]
        while True:
            # Ray lists a node for some seconds after its death.
            present = {name: node for name, node in self.platform.present().items() if name not in gone}
            try:
                return self._start_on(present)
            except _platform.NodeGone as error:
                gone.add(error.name)
                self.events.append(f"{error.name} is left out ({error})")
                if gone >= present.keys():
                    raise

    def _start_on(self, present: Mapping[str, str]) -> None:
        counts = self._counts(present)
        kept: dict[str, list[Link]] = {name: [] for name in present}
        for link in self._links:
            if len(kept.get(link.node, ())) < counts.get(link.node, 0):
                kept[link.node].append(link)
        self._drop(link for link in self._links if link not in kept.get(link.node, ()))
        self._links = [link for links in kept.values() for link in links]
        cls = self._ray.remote(WorkerHost)
        opening = []
        for name, node in present.items():
            options = {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": _platform.on_node(node)}
            for _ in range(counts[name] - len(kept[name])):
                actor = cls.options(**options).remote(self._key)
                opening.append((name, actor, actor.address.remote()))
        try:
            for name, actor, address in opening:
                kept[name].append(Link(name, actor, _platform.wait(name, address, self._timeout), self._key, self._hang))
        except BaseException:
            _platform.stop(actor for _, actor, _ in opening)
            raise
        self._links = [link for links in kept.values() for link in links]
        for number, link in enumerate(self._links):
            link.name = f"worker {number} on {link.node}"

    @staticmethod
    def _drop(links: Iterable[Link]) -> None:
        for link in links:
            link.close()
            _platform.stop([link.actor])

    def _counts(self, present: Mapping[str, str]) -> dict[str, int]:
        """Number of processes of each node."""
        if self._wanted is None:
            cpus = {node["NodeID"]: node["Resources"].get("CPU", 1) for node in self._ray.nodes()}
            return {name: max(1, int(cpus.get(node, 1))) for name, node in present.items()}
        each, more = divmod(self._wanted, len(present))
        return {name: each + (number < more) for number, name in enumerate(present)}

    def _enter(self) -> None:
        """Begins a run: all processes answer, and have forgotten the last one."""
        self._refuse_if_closed()
        if not self._running.acquire(blocking=False):
            raise InputError("another run uses these workers; wait for its end, or make others")
        try:
            self._start()
        except BaseException:
            self._running.release()
            raise

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise InputError("the workers were closed; make others")

    @contextlib.contextmanager
    def _run(self) -> Iterator[FlowRun]:
        """A run, for its time."""
        self._enter()
        try:
            yield FlowRun(self._links)
        finally:
            self._running.release()

    def _description(self) -> dict[str, Any]:
        """The workers and links, as placements take them."""
        nodes = self.nodes
        own = [self.platform.links[name, name] for name in nodes if (name, name) in self.platform.links]
        others = [costs for (source, target), costs in self.platform.links.items() if source != target and {source, target} <= set(nodes)]
        counts = [sum(link.node == name for link in self._links) for name in nodes]
        return {"workers": counts, "same_machine": _middle(own or others), "other_machine": _middle(others or own)}


def _middle(links: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Median latency and rate of links. Of a platform without links, those of a local network."""
    if not links:
        return 1e-4, 1e9
    return statistics.median(latency for latency, _ in links), statistics.median(rate for _, rate in links)


class Link:
    """The connection of the driver to one process."""

    def __init__(self, node: str, actor: Any, address: Address, key: bytes, hang: float) -> None:
        self.node, self.actor, self.address = node, actor, (address[0], address[1])
        self.name = node
        self._key, self.hang = key, hang
        self._wire: Wire | None = _host.wire(node, address, key)

    def answers(self) -> bool:
        """Whether the process is ready for a run."""
        try:
            self.ask({"do": "begin"}, {})
            return True
        except DeviceError:
            return False

    def ask(self, head: dict[str, Any], packet: Packet, token: _native.CancelToken | None = None) -> tuple[dict[str, Any], Packet]:
        """Sends a request, and waits for its answer. If `token` is cancelled, the process is asked to end its command.

        Raises:
            DeviceError: If the process is gone.
        """
        try:
            if self._wire is None:
                raise EOFError
            self._wire.send(head, packet)
            is_asked, looked = False, time.monotonic()
            while not self._wire.has_arrived(self.hang if token is None else _GLANCE):
                if token is not None and token.is_cancelled() and not is_asked:
                    is_asked = True
                    self._cancel()
                if time.monotonic() - looked >= self.hang:
                    self._ping()
                    looked = time.monotonic()
            return self._wire.receive()
        except (OSError, EOFError) as error:
            self.close()
            why = f": {error}" if str(error) else ""
            raise DeviceError(f"{self.name} is gone{why}; run again, on the nodes that are left") from None

    def _ping(self) -> None:
        ray = _host.ray_module()
        try:
            ray.get(self.actor.process.remote(), timeout=self.hang)
        except ray.exceptions.RayError as error:
            what = f"it does not answer for {self.hang:g} s" if isinstance(error, ray.exceptions.GetTimeoutError) else _host.text_of(error)
            raise EOFError(what) from None

    def _cancel(self) -> None:
        """Asks the process to end its command."""
        try:
            other = Wire.to(self.address, self._key)
            other.send({"do": "cancel"}, {})
            other.receive()
            other.close()
        except (OSError, EOFError, AuthenticationError):
            # It has ended.
            pass

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self._wire = None
