"""Nodes of a Ray cluster as one platform: their devices, and the links between them."""

from __future__ import annotations

import itertools
import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..errors import AnabranchError, DeviceError, InputError, Timeout
from ..views import Rows
from . import _host

OUTSIDE = "outside"
"""Name of the driver, which gives inputs and takes results, at the end of a link."""

_FORMAT = "anabranch-cluster"
_VERSION = 1


@dataclass(frozen=True)
class Node:
    """A node of the cluster.

    Attributes:
        name: Name in plans, such as ``node1``.
        id: Ray's identifier of the node; None if the node is only described.
        host: Name of its machine.
        devices: Its devices: ``name``, ``kind`` and ``memory`` in bytes.
    """

    name: str
    id: str | None
    host: str
    devices: tuple[dict[str, Any], ...]


class Platform:
    """Nodes of a cluster with their devices, and the links between the nodes.

    A link takes ``latency + bytes / rate`` seconds, as measured with small and large values between processes of the nodes.

    Attributes:
        events: Lines about nodes that were left out of the measurement, because they have died.

    Raises:
        InputError: If names are not clear, or a number is wrong.
    """

    def __init__(
        self, nodes: Sequence[Node], links: Mapping[tuple[str, str], tuple[float, float]], events: Sequence[str] = ()
    ) -> None:
        self.nodes = tuple(nodes)
        self.links = dict(links)
        self.events = list(events)
        _verify(self.nodes, self.links)

    @classmethod
    def measure(
        cls,
        *,
        timeout: float = 120.0,
        progress: Callable[[str], object] | None = None,
        **options: Any,
    ) -> Platform:
        """Describes all nodes of the cluster that this process is connected to, and measures the links between them.

        Takes some seconds per node for its process, and a tenth of a second per link.

        Args:
            timeout: Longest time in seconds to wait for a node.
            progress: Called with a line about each step.
            options: Options of `anabranch.Session` that select devices, for all nodes.

        Raises:
            InputError: If Ray is not connected, or an option is invalid.
            DeviceError: If a node cannot run this package, or has another version of it. The error names the node.
        """
        seconds("timeout", timeout)
        verify_progress(progress)
        if unknown := [name for name in options if name not in _host.DEVICE_OPTIONS]:
            raise InputError(f"there is no option `{unknown[0]}`; the options are timeout, progress, {', '.join(_host.DEVICE_OPTIONS)}")
        return cls._measured(timeout, progress, options, strict=True)

    @classmethod
    def _measured(
        cls, timeout: float, progress: Callable[[str], object] | None, options: Mapping[str, Any], strict: bool
    ) -> Platform:
        """The platform without nodes that have died. Unless `strict`, nodes that start no process for another reason are left out, too."""
        gone: set[str] = set()
        events: list[str] = []
        while True:
            # Ray lists a node for some seconds after its death.
            nodes = {name: node for name, node in alive().items() if node not in gone}
            key = secrets.token_bytes(32)
            hosts = start_hosts(nodes, options, key, timeout, events, strict)
            try:
                found = cls._of_hosts(nodes, hosts, key, timeout, progress or (lambda line: None))
                found.events = events
                return found
            except NodeGone as error:
                gone.add(nodes[error.name])
                events.append(f"{error.name} is left out ({error})")
            finally:
                stop(hosts.values())

    @classmethod
    def _of_hosts(
        cls, nodes: Mapping[str, str], hosts: Mapping[str, Any], key: bytes, timeout: float, tell: Callable[[str], object]
    ) -> Platform:
        described, addresses = [], {}
        for name, host in hosts.items():
            tell(f"devices of {name}")
            about = wait(name, host.about.remote(), timeout)
            devices = wait(name, host.devices.remote(), timeout)
            described.append(Node(name, nodes[name], about["host"], tuple(devices)))
            addresses[name] = about["address"]
        links = {}
        for name, address in addresses.items():
            tell(f"links to {name}")
            try:
                links[OUTSIDE, name] = links[name, OUTSIDE] = _host.probe(name, address, key)
            except (OSError, EOFError) as error:
                # If its process has died, this says so.
                wait(name, hosts[name].about.remote(), timeout)
                raise DeviceError(f"the link to {name} cannot be measured: {error or type(error).__name__}") from None
            for source, host in hosts.items():
                links[source, name] = wait(source, host.probe.remote(name, address), timeout)
        return cls(described, links)

    def dict(self) -> dict[str, Any]:
        """The platform as data: ``nodes`` and ``links``, as `save` writes it."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "nodes": [{"name": node.name, "id": node.id, "host": node.host, "devices": [dict(device) for device in node.devices]} for node in self.nodes],
            "links": [
                {"from": ends[0], "to": ends[1], "latency": latency, "rate": rate}
                for ends, (latency, rate) in sorted(self.links.items())
            ],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the platform to a JSON file, which may be edited."""
        with open(path_of("path", path), "w", encoding="utf-8") as file:
            json.dump(self.dict(), file, indent=2)
            file.write("\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Platform:
        """Reads a platform that `save` has written, or that describes nodes that do not exist.

        Raises:
            InputError: If the file is not a platform.
        """
        path = path_of("path", path)
        try:
            with open(path, encoding="utf-8") as file:
                return cls._of(json.load(file))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise InputError(f"{path}: {error}") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @classmethod
    def _of(cls, data: Any) -> Platform:
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise InputError(f"not a platform: `format` must be {_FORMAT!r}; Platform.save writes such files")
        if data.get("version") != _VERSION:
            raise InputError(f"a platform of version {data.get('version')!r}, but this package reads version {_VERSION}; measure it again")
        try:
            nodes = [
                Node(str(node["name"]), node.get("id"), str(node.get("host", "")), tuple(dict(device) for device in node["devices"]))
                for node in data["nodes"]
            ]
            links = [
                ((str(link["from"]), str(link["to"])), (float(link["latency"]), float(link["rate"]))) for link in data["links"]
            ]
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise InputError(f"a node or link is incomplete or wrong: {error!r}") from error
        if twice := _twice([ends for ends, _ in links]):
            raise InputError(f"the link from {twice[0]} to {twice[1]} is given twice; leave one of them")
        platform, known = cls(nodes, dict(links)), {OUTSIDE, *(node.name for node in nodes)}
        if unknown := [end for ends, _ in links for end in ends if end not in known]:
            raise InputError(f"a link names {unknown[0]!r}, which is no node; the nodes are {', '.join(node.name for node in nodes)}")
        return platform

    def _with(self, found: Platform) -> Platform:
        """This platform, with the nodes and links of another that it does not know. Nodes are the same if Ray's identifiers are."""
        names = {node.id: node.name for node in self.nodes}
        fresh = (f"node{number}" for number in itertools.count(1) if f"node{number}" not in names.values())
        added = [replace(node, name=next(fresh)) for node in found.nodes if node.id not in names]
        names.update({node.id: node.name for node in added})
        renamed = {OUTSIDE: OUTSIDE, **{node.name: names[node.id] for node in found.nodes}}
        links = {(renamed[source], renamed[target]): costs for (source, target), costs in found.links.items()}
        return Platform([*self.nodes, *added], {**links, **self.links})

    def present(self) -> Mapping[str, str]:
        """Ray's identifiers of the nodes that are alive, by the nodes' names.

        Raises:
            InputError: If Ray is not connected.
            DeviceError: If none is alive.
        """
        ids = set(alive().values())
        present = {node.name: node.id for node in self.nodes if node.id in ids and node.id is not None}
        if not present:
            raise DeviceError(
                "none of the platform's nodes is alive in this Ray cluster; measure the platform again with Platform.measure()"
            )
        return present

    def absent(self) -> list[str]:
        """Lines about the nodes that are not alive."""
        present = self.present()
        return [
            f"{node.name} is left out (no node of this Ray cluster that is alive has its id, {node.id})"
            for node in self.nodes
            if node.name not in present
        ]

    def missing(self, name: str, found: Sequence[str]) -> list[str]:
        """Lines about the devices of a node that are not among those found there."""
        devices = [device["name"] for node in self.nodes if node.name == name for device in node.devices]
        return [
            f"{name}/{device} is left out (the node has no such device with these options; its devices are {', '.join(found)})"
            for device in devices
            if device not in found
        ]

    def rows(self) -> Rows:
        """The devices as a table."""
        return Rows(
            {"device": f"{node.name}/{device['name']}", "kind": device.get("kind"), "memory": device.get("memory"), "host": node.host}
            for node in self.nodes
            for device in node.devices
        )

    def link_rows(self) -> Rows:
        """The links as a table: latency in milliseconds, and rate in bytes per second."""
        return Rows(
            {"from": source, "to": target, "latency_ms": latency * 1e3, "rate": rate}
            for (source, target), (latency, rate) in sorted(self.links.items())
        )

    def __repr__(self) -> str:
        return f"Platform({', '.join(row['device'] for row in self.rows())})"


def _verify(nodes: Sequence[Node], links: Mapping[tuple[str, str], tuple[float, float]]) -> None:
    """Checks names, identifiers, memory and links."""
    names = [node.name for node in nodes]
    if _twice(names) or OUTSIDE in names:
        raise InputError(f"nodes need different names, and none may be called {OUTSIDE!r}")
    if wrong := [name for name in names if not (isinstance(name, str) and name) or "/" in name]:
        raise InputError(f"a node is called {wrong[0]!r}; names are not empty and have no /, which parts them from those of devices")
    if wrong := [node.name for node in nodes if not (node.id is None or isinstance(node.id, str))]:
        raise InputError(f"the id of {wrong[0]} is no text; it is Ray's identifier of the node, or null")
    if twice := _twice([node.id for node in nodes if node.id is not None]):
        raise InputError(f"two nodes have the id {twice}; each has its own")
    for node in nodes:
        for device in node.devices:
            name, memory = device.get("name"), device.get("memory")
            if not (isinstance(name, str) and name) or not (memory is None or type(memory) is int and memory >= 0):
                raise InputError(f"a device of {node.name} needs a name, and a memory in bytes or null")
        if twice := _twice([device["name"] for device in node.devices]):
            raise InputError(f"two devices of {node.name} are called {twice}; names are different")
    for ends, (latency, rate) in links.items():
        if not (0 <= latency < float("inf") and 0 < rate < float("inf")):
            raise InputError(f"the link from {ends[0]} to {ends[1]} needs a latency of at least 0 and a finite rate above 0")


_Key = TypeVar("_Key", str, tuple[str, str])


def _twice(keys: Sequence[_Key]) -> _Key | None:
    """The first key that is there more than once."""
    return next((key for key, count in Counter(keys).items() if count > 1), None)


def connected() -> Any:
    """The module ``ray`` of a process that is connected to a cluster.

    Raises:
        InputError: If it is not installed, or not connected.
    """
    ray = _host.ray_module()
    if not ray.is_initialized():
        raise InputError("this process is not connected to a Ray cluster; call ray.init() first")
    return ray


def alive() -> dict[str, str]:
    """Identifiers of the cluster's nodes that are alive, by their names. The head comes first."""
    ray = connected()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    nodes.sort(key=lambda node: ("node:__internal_head__" not in node["Resources"], node["NodeManagerAddress"], node["NodeID"]))
    return {f"node{number}": node["NodeID"] for number, node in enumerate(nodes, 1)}


def on_node(node: str) -> Any:
    """Ray's strategy that keeps an actor on a node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


class NodeGone(DeviceError):
    """A node, or its process, has died."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


def start_hosts(
    nodes: Mapping[str, str], options: Mapping[str, Any], key: bytes, timeout: float, events: list[str], strict: bool = True
) -> dict[str, Any]:
    """Starts an actor on each node, and compares the versions of the package. Nodes that have died are left out, and `events` gets a line
    about each. Unless `strict`, nodes with any other error are left out, too.

    Raises:
        AnabranchError: The error of a node. If no node is left, that of the last.
    """
    cls = _host.ray_module().remote(_host.Host)
    hosts = {
        name: cls.options(num_cpus=0, max_restarts=0, scheduling_strategy=on_node(node)).remote(dict(options), key)
        for name, node in nodes.items()
    }
    own = _host.version()
    for name, host in list(hosts.items()):
        try:
            other = wait(name, host.about.remote(), timeout)["version"]
            if other != own:
                text = f"{name} has version {other} of anabranch, but this process has {own}; install the same version on all nodes"
                raise DeviceError(text)
        except AnabranchError as error:
            stop([hosts.pop(name)])
            if strict and not isinstance(error, NodeGone) or not hosts:
                stop(hosts.values())
                raise
            events.append(f"{name} is left out ({error})")
    return hosts


def seconds(name: str, value: Any) -> float:
    """An option that is a number of seconds."""
    if isinstance(value, bool) or not (isinstance(value, (int, float)) and 0 < value < float("inf")):
        raise InputError(f"option `{name}` = {value!r}: give seconds above 0")
    return float(value)


def verify_progress(progress: Any) -> None:
    """Checks an option that is told about each step."""
    if progress is not None and not callable(progress):
        raise InputError(f"option `progress` = {progress!r}: give a function that takes a line")


def path_of(name: str, value: Any) -> str:
    """An argument that is a path."""
    try:
        return os.path.abspath(os.fsdecode(value))
    except TypeError:
        raise InputError(f"`{name}` is {type(value).__name__}; give a path") from None


def wait(node: str, result: Any, timeout: float) -> Any:
    """Waits for the result of a call on a node. Errors name the node."""
    ray = _host.ray_module()
    try:
        return ray.get(result, timeout=timeout)
    except ray.exceptions.GetTimeoutError:
        raise Timeout(f"{node} did not answer within {timeout:g} s; look at `ray status`, or raise `timeout`") from None
    except ray.exceptions.RayTaskError as error:
        raise named(node, error) from None
    except ray.exceptions.RayError as error:
        text = f"{node}: {_host.text_of(error)}"
        unschedulable = isinstance(error, ray.exceptions.ActorUnschedulableError)
        if unschedulable or isinstance(error, ray.exceptions.RayActorError) and not error.actor_init_failed:
            raise NodeGone(node.partition("/")[0], text) from None
        raise DeviceError(text) from None


def named(place: str, error: Any) -> Exception:
    """An error of a call, with its place in the text."""
    if isinstance(error.cause, AnabranchError):
        return _host.unpacked(_host.packed(place, error.cause))
    return DeviceError(f"{place}: {_host.text_of(error)}")


def stop(actors: Iterable[Any]) -> None:
    """Ends actors at once."""
    ray = _host.ray_module()
    for actor in actors:
        if not ray.is_initialized():
            # Ray has ended them.
            return
        try:
            ray.kill(actor)
        except (ray.exceptions.RayError, ValueError):
            # It is of an earlier connection, which has ended it.
            continue
