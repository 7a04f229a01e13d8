"""Graphs of commands and files whose commands run on the nodes of a cluster."""

from __future__ import annotations

import json
import os
from typing import Any

from .. import _arrays, _native
from ..errors import AnabranchError, InputError
from .platform import path_of
from .workers import Workers


def run_graph(
    graph: str | os.PathLike[str],
    workers: Workers,
    *,
    directory: str | os.PathLike[str] = ".",
    scheduler: str = "local",
    place: str = "sucuri",
    fresh: bool = False,
    outside: bool = False,
) -> dict[str, Any]:
    """Runs a graph of commands and files in DALiuGE's format, as ``anabranch flow GRAPH`` does, with its commands on the nodes of a
    cluster. Ctrl-C ends its commands.

    Args:
        graph: A logical graph, or a physical graph template.
        workers: Processes that run the commands, one at a time each.
        directory: Directory of the run, with all its files. All nodes need it at the same path.
        scheduler: ``central``, ``central-stealing``, ``local`` or ``stealing``.
        place: Strategy that assigns applications to nodes, for local schedulers.
        fresh: Whether results of earlier runs are made again.
        outside: Whether files may have absolute paths outside of the directory.

    Returns:
        ``drops``, the state of each drop, the numbers of applications that ``ran`` and were ``kept``, ``failures`` with their reasons,
        whether the run was ``cancelled``, and the ``flow`` with its times.

    Raises:
        InputError: If the graph or an argument is invalid, or there is no such directory.
        DeviceError: If no node is left. If a process dies, its applications fail, and a further run makes what is missing.
    """
    if not isinstance(workers, Workers):
        raise InputError(f"`workers` is {type(workers).__name__}; give anabranch.cluster.Workers")
    graph, directory = path_of("graph", graph), path_of("directory", directory)
    if not os.path.isdir(directory):
        raise InputError(f"{directory}: there is no such directory; make it, at the same path for all nodes")
    token = _native.CancelToken()
    workers._enter()
    try:
        links = workers._links

        def shell(command: str, directory: str, id: str) -> str | None:
            link = links[_native.flow_worker() or 0]
            head = {"do": "command", "command": command, "directory": directory, "id": id}
            try:
                failed = link.ask(head, {}, token)[0]["failed"]
            except AnabranchError as error:
                return str(error)
            return None if failed is None else f"on {link.name}: {failed}"

        options = {
            "directory": directory,
            "cluster": workers._description(),
            "scheduler": scheduler,
            "place": place,
            "fresh": bool(fresh),
            "outside": bool(outside),
        }
        return dict(json.loads(_native.run_graph(graph, _arrays.dumps(options), shell, token)))
    finally:
        workers._running.release()
