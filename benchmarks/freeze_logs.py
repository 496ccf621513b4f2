"""What a fleet's logs say of requests that were taken from a worker that does not answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

RETRIED = "a worker failed before the first token; the request goes to another worker"
GONE_ON = "an answer goes on with another worker"
_GIVEN_UP = frozenset({"handoff failed; the prompt is computed elsewhere", RETRIED, GONE_ON})


def longest_wait_on_worker_s(log_dir: Path, worker_id: str, frozen: datetime) -> float | None:
    """The longest that a request waited on the worker after `frozen` until somebody took it away or
    ended it with an error; None when no request did."""
    lines = [line for line in _lines(log_dir) if _when(line) >= frozen]
    accepted = {
        line["request_id"]: _when(line) for line in lines if line["event"] == "request accepted"
    }
    waits = [
        (_when(line) - max(frozen, accepted.get(line["request_id"], frozen))).total_seconds()
        for line in lines
        if _is_given_up(line, worker_id)
    ]
    return max(waits, default=None)


def _is_given_up(line: dict[str, Any], worker_id: str) -> bool:
    if line["event"] in _GIVEN_UP:
        return worker_id in (line.get("prefill_worker"), line.get("worker_id"))
    is_routers = line["process"] == "router" and line["event"] == "request ended"
    return is_routers and line.get("outcome") == "worker_lost"


def _lines(log_dir: Path) -> Iterator[dict[str, Any]]:
    """Of requests; what a library has printed is left out."""
    for path in log_dir.glob("*.log"):
        for text in path.read_text().splitlines():
            if text.startswith("{") and '"request_id"' in text and text.endswith("}"):
                yield json.loads(text)


def _when(line: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(line["timestamp"])
