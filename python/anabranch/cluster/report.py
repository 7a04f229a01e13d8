"""What a report and the dashboard say of a pipeline: stages, links and runs as data, and metrics of Ray."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Any

from . import _host
from .platform import OUTSIDE, Platform

_EVERY = 1.0
"""Seconds between two updates of the metrics."""


def described(
    division: Mapping[str, Any], measured: Mapping[str, Any], history: Mapping[str, Any], sent: Mapping[str, int], platform: Platform
) -> dict[str, Any]:
    """The tables and lanes of a report. `history` is that of `Line.history`, `sent` the bytes from this process by device."""
    stages, seconds = division["stages"], measured["stages"]
    rows = [
        {
            "stage": at,
            "device": device,
            "nodes": len(stage["nodes"]),
            "weights": stage["weights"],
            "predicted": predicted,
            "measured": seconds[at].get(device) if at < len(seconds) else None,
        }
        for at, stage in enumerate(stages)
        for device, predicted in zip(stage["devices"], stage["seconds"])
    ]
    devices = dict.fromkeys(row["device"] for row in rows)
    return {
        "how": division["how"],
        "results": measured["results"],
        "predicted_period": division["period"],
        "measured_period": measured["period"],
        "predicted_latency": division["latency"],
        "measured_latency": (measured["latency"]["p50"], measured["latency"]["p95"]) if measured["latency"] else None,
        "lower_bound": division["lower_bound"],
        "stages": rows,
        "links": _links(division, history, sent, platform),
        "lanes": [{"device": device, "runs": history.get(device, {}).get("runs", [])} for device in devices],
    }


def _links(division: Mapping[str, Any], history: Mapping[str, Any], sent: Mapping[str, int], platform: Platform) -> list[dict[str, Any]]:
    """The links that inputs take from device to device."""
    if not division["chain"]:
        return _direct_links(division, history, sent)
    ends = [[OUTSIDE], *(stage["devices"] for stage in division["stages"]), [OUTSIDE]]
    sizes = [*(stage["bytes_in"] for stage in division["stages"]), division["bytes_out"]]
    links = []
    for sources, targets, size in zip(ends, ends[1:], sizes):
        pairs = {(number % len(sources), number % len(targets)) for number in range(len(sources) * len(targets))}
        for source, target in sorted(pairs):
            names = sources[source], targets[target]
            nodes = names[0].partition("/")[0], names[1].partition("/")[0]
            latency, rate = platform.links[nodes]
            predicted = latency + size / rate
            links.append({"from": names[0], "to": names[1], "bytes": size, "predicted": predicted, "sent": _sent(names, history, sent)})
    return links


def _direct_links(division: Mapping[str, Any], history: Mapping[str, Any], sent: Mapping[str, int]) -> list[dict[str, Any]]:
    """The links that messages of an input take."""
    links: dict[tuple[str, str], dict[str, Any]] = {}
    for message in division["messages"]:
        ends = message["from"], message["to"]
        link = links.setdefault(ends, {"from": ends[0], "to": ends[1], "bytes": 0, "predicted": 0.0, "sent": _sent(ends, history, sent)})
        link["bytes"] += message["bytes"]
        link["predicted"] += message["seconds"]
    return list(links.values())


def _sent(ends: tuple[str, str], history: Mapping[str, Any], sent: Mapping[str, int]) -> int:
    """Bytes that were sent from one device to another."""
    given = sent if ends[0] == OUTSIDE else history.get(ends[0], {}).get("sent", {})
    return int(given.get(ends[1], 0))


class Metrics:
    """Metrics of one pipeline in Ray's dashboard, brought up to date about once a second."""

    def __init__(self, model: str) -> None:
        self._tags = {"model": model}
        self._items, self._waited, self._updated = 0, 0.0, time.monotonic()

    def result(self, latency: float) -> None:
        """Counts a result."""
        self._items, self._waited = self._items + 1, self._waited + latency
        if time.monotonic() - self._updated >= _EVERY:
            self.update()

    def restart(self) -> None:
        """Counts a division after a failure."""
        _metrics()["restarts"].inc(1, self._tags)

    def update(self) -> None:
        """Brings the metrics up to date."""
        now = time.monotonic()
        if self._items:
            metrics = _metrics()
            metrics["items"].inc(self._items, self._tags)
            metrics["period"].set((now - self._updated) / self._items, self._tags)
            metrics["latency"].set(self._waited / self._items, self._tags)
        self._items, self._waited, self._updated = 0, 0.0, now

    def begin(self) -> None:
        """Begins a stream: the time before it does not count."""
        self._items, self._waited, self._updated = 0, 0.0, time.monotonic()


@functools.cache
def _metrics() -> dict[str, Any]:
    _host.ray_module()
    from ray.util.metrics import Counter, Gauge

    made = {
        "items": (Counter, "results of a pipeline"),
        "restarts": (Counter, "divisions of a pipeline after failures"),
        "period": (Gauge, "seconds between results of a pipeline, mean of the last second"),
        "latency": (Gauge, "seconds from an input to its result, mean of the last second"),
    }
    return {name: cls(f"anabranch_pipeline_{name}", text, ("model",)) for name, (cls, text) in made.items()}
