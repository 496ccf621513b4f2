"""What a worker of a fleet has drafted, by its own page."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import httpx

from tests.fleet.support import wait_for

SAMPLES = "splitserve_worker_draft_tokens_total{"


def tried_and_kept(log: Path, *, num_tokens: int) -> tuple[Counter[str], Counter[str]]:
    """Tokens of each drafter, of the worker that writes this log. It tells them after its answers:
    `num_tokens` is what these have said of all drafters."""
    page = f"http://127.0.0.1:{_ready(log)['metrics_port']}/metrics"
    tried, kept = Counter[str](), Counter[str]()

    def are_told() -> bool:
        tried.clear()
        kept.clear()
        for line in httpx.get(page, timeout=60).text.splitlines():
            if line.startswith(SAMPLES):
                labels, value = line.removeprefix(SAMPLES).split("} ")
                named = dict(label.split("=") for label in labels.replace('"', "").split(","))
                tried[named["drafter"]] += int(float(value))
                kept[named["drafter"]] += int(float(value)) * (named["outcome"] == "kept")
        return tried.total() >= num_tokens

    wait_for(are_told, timeout_s=60, what=f"{num_tokens} drafted tokens")
    assert tried.total() == num_tokens
    return tried, kept


def _ready(log: Path) -> dict[str, str]:
    lines = [json.loads(s) for s in log.read_text().splitlines() if s.startswith("{")]
    ready: dict[str, str] = [line for line in lines if line.get("event") == "ready"][-1]
    return ready
