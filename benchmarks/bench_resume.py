"""Resumable streams whose router is killed: python -m benchmarks.bench_resume [--json PATH]

Three routers with a store, two decode workers, one client of each kind. The routers that tell the
streams are killed one after the other (SIGKILL); each client reads on at the next one, and in the
end has what an undisturbed client has. Of each the longest wait between two events: a router that
goes on with another's stream tells the next of it within RESUMED_WITHIN_S.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import Row, exit_code, print_table, write_json
from benchmarks.router_fleet import router_fleet
from examples.resuming_client import events

RESULTS = Path(__file__).parent / "results" / "resume.json"
RESUMED_WITHIN_S = 2.0
"""Beyond the longest wait of an undisturbed stream: a new connection, what was told read back, and
what was told and not shared made again."""
PATH = "/v1/chat/completions"
NUM_TOKENS = 96
ASK = {
    "messages": [{"role": "user", "content": "Tell a long story of a fox and a river."}],
    "max_tokens": NUM_TOKENS,
    "stream_options": {"include_usage": True},
}
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded, two choices": {"temperature": 0.9, "seed": 11, "n": 2},
    "logprobs": {"temperature": 0.7, "seed": 5, "logprobs": True, "top_logprobs": 2},
    "stop string": {"temperature": 0.0, "stop": ["\n\nAs "]},
}
KILLED_AFTER_EVENTS = (12, 36)
"""That the slowest client has."""


@dataclass
class Client:
    """What it has, and how long it waited."""

    texts: dict[int, str] = field(default_factory=dict)
    logprobs: list[Any] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    usage: Any = None
    num_events: int = 0
    longest_wait_s: float = 0.0
    is_over: bool = False

    def read(self, urls: Sequence[str], body: dict[str, Any]) -> None:
        """To the end of its stream."""
        last_s = time.monotonic()
        for chunk in events(urls, PATH, {**ASK, **body}):
            now_s = time.monotonic()
            self.longest_wait_s = max(self.longest_wait_s, now_s - last_s)
            last_s = now_s
            self._take(chunk)
        self.is_over = True

    def everything(self) -> tuple[Any, ...]:
        """What is to be as if nothing had been. Blocks may be cached the second time."""
        usage = {name: self.usage[name] for name in ("prompt_tokens", "completion_tokens")}
        return self.texts, self.logprobs, self.reasons, usage

    def _take(self, chunk: dict[str, Any]) -> None:
        self.num_events += 1
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            index = choice["index"]
            text = choice["delta"].get("content") or ""
            self.texts[index] = self.texts.get(index, "") + text
            self.logprobs += (choice["logprobs"] or {}).get("content", [])
            if choice["finish_reason"]:
                self.reasons[index] = choice["finish_reason"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    rows = _rows(*_read_on())
    print_table("resumable streams, two of three routers killed", rows)
    write_json(options.json, "resume", rows)
    return exit_code(rows)


def _read_on() -> tuple[dict[str, Client], dict[str, Client]]:
    """The undisturbed ones, and those whose routers are killed."""
    with router_fleet(3, 0, 2) as fleet:
        urls = [router.url for router in fleet.routers]
        undisturbed = {kind: Client() for kind in KINDS}
        for kind, body in KINDS.items():
            undisturbed[kind].read(urls[2:], body)
        clients = {kind: Client() for kind in KINDS}
        with ThreadPoolExecutor(len(KINDS)) as pool:
            reading = [pool.submit(clients[kind].read, urls, KINDS[kind]) for kind in KINDS]
            for router, after in zip(fleet.routers, KILLED_AFTER_EVENTS, strict=False):
                _await_events(clients, after)
                router.process.kill()
            for each in reading:
                each.result()
    return undisturbed, clients


def _rows(undisturbed: dict[str, Client], clients: dict[str, Client]) -> list[Row]:
    rows = []
    for kind, client in clients.items():
        before = undisturbed[kind]
        is_other = client.everything() != before.everything()
        waited_s, goal_s = client.longest_wait_s, RESUMED_WITHIN_S + before.longest_wait_s
        rows.append(Row(f"{kind}: other than undisturbed", is_other, "answers", goal=0))
        rows.append(Row(f"{kind}: longest wait", waited_s, "s", before.longest_wait_s, goal_s))
    return rows


def _await_events(clients: dict[str, Client], num_events: int) -> None:
    pause = threading.Event()
    while any(c.num_events < num_events and not c.is_over for c in clients.values()):
        pause.wait(0.01)


if __name__ == "__main__":
    raise SystemExit(main())
