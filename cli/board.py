"""A board of Grafana's: rows of panels, of which each has a title, a unit and queries by legend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

RELEASE = 'namespace="$namespace",app_kubernetes_io_instance="$release"'
"""What every query is about; the chart's PodMonitor gives the series of pods both labels."""
_WIDTH = 24
_HEIGHT = 8


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph."""

    title: str
    unit: str
    """Grafana's word."""
    queries: Mapping[str, str]
    """By legend; RELEASE is put where @ stands."""


@dataclass(frozen=True, slots=True)
class Board:
    """A page of graphs."""

    uid: str
    title: str
    rows: tuple[tuple[Panel, ...], ...]

    def queries(self) -> Iterator[str]:
        """All, as Prometheus is asked, but for Grafana's own variables."""
        for row in self.rows:
            for panel in row:
                yield from map(_asked, panel.queries.values())


def board_json(board: Board) -> dict[str, Any]:
    """As Grafana imports it."""
    return {
        "uid": board.uid,
        "title": board.title,
        "tags": ["splitserve"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels(board)),
    }


def _variables() -> Iterator[dict[str, Any]]:
    of_namespace = 'splitserve_queued_requests{namespace="$namespace"}'
    yield {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    yield _variable("namespace", "label_values(splitserve_queued_requests, namespace)")
    yield _variable("release", f"label_values({of_namespace}, app_kubernetes_io_instance)")


def _variable(name: str, query: str) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "$source"}
    return {"name": name, "type": "query", "datasource": source, "query": query, "refresh": 2}


def _panels(board: Board) -> Iterator[dict[str, Any]]:
    number = 0
    for at, row in enumerate(board.rows):
        width = _WIDTH // len(row)
        for column, panel in enumerate(row):
            number += 1
            place = {"x": column * width, "y": at * _HEIGHT, "w": width, "h": _HEIGHT}
            yield _panel(panel, number, place)


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "$source"}
    targets = [
        {"refId": chr(ord("A") + at), "expr": _asked(query), "legendFormat": legend}
        for at, (legend, query) in enumerate(panel.queries.items())
    ]
    return {
        "id": number,
        "title": panel.title,
        "type": "timeseries",
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def _asked(query: str) -> str:
    return query.replace("@", RELEASE)
