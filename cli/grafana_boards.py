"""Grafana's boards, deploy/helm/splitserve/monitoring/*.json: python -m cli.grafana_boards FOLDER

What metrics mean stands in docs/operations.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cli.board import Board, Panel, board_json

RATE = "$__rate_interval"
"""Grafana's: so long that every rate has four scrapes."""


def _rate(name: str, *by: str, more: str = "") -> str:
    grouping = f"sum by ({', '.join(by)})" if by else "sum"
    return f"{grouping} (rate(splitserve_{name}{{{more}@}}[{RATE}]))"


def _quantile(part: float, name: str, *by: str) -> str:
    rate = f"rate(splitserve_{name}_bucket{{@}}[{RATE}])"
    return f"histogram_quantile({part}, sum by ({', '.join(('le', *by))}) ({rate}))"


def _mean(name: str, *by: str) -> str:
    return f"{_rate(f'{name}_sum', *by)} / {_rate(f'{name}_count', *by)}"


def _now(how: str, name: str, *by: str) -> str:
    grouping = f"{how} by ({', '.join(by)})" if by else how
    return f"{grouping} (splitserve_{name}{{@}})"


def _of_prompts(name: str) -> str:
    return f"{_rate(name)} / {_rate('prompt_tokens_total')}"


def _percentiles(name: str) -> dict[str, str]:
    return {f"p{100 * part:.0f}": _quantile(part, name) for part in (0.5, 0.95, 0.99)}


_WORKERS = f"sum by (role, state) ({_now('max', 'member_state', 'worker', 'role', 'state')})"
"""Each router tells of each worker."""

REQUESTS = Board(
    "splitserve-requests",
    "splitserve: requests, by stage",
    (
        (
            Panel(
                "Requests by how they ended",
                "reqps",
                {"{{outcome}}": _rate("requests_total", "outcome")},
            ),
            Panel(
                "Requests now",
                "short",
                {
                    "in line": _now("sum", "queued_requests"),
                    "running": _now("sum", "running_requests"),
                },
            ),
            Panel("Refused, by reason", "reqps", {"{{reason}}": _rate("refusals_total", "reason")}),
        ),
        (
            Panel("Time to first token", "s", _percentiles("ttft_seconds")),
            Panel(
                "Where it goes: mean of each stage",
                "s",
                {"{{stage}}": _mean("ttft_stage_seconds", "stage")},
            ),
            Panel("Between tokens", "s", _percentiles("inter_token_seconds")),
        ),
        (
            Panel(
                "Tokens",
                "short",
                {
                    "prompt": _rate("prompt_tokens_total"),
                    "generated": _rate("completion_tokens_total"),
                },
            ),
            Panel(
                "Prompt tokens from caches",
                "percentunit",
                {
                    "found": _of_prompts("prefix_hit_tokens_total"),
                    "expected": _of_prompts("prefix_expected_tokens_total"),
                },
            ),
            Panel("Routes, by why", "reqps", {"{{reason}}": _rate("routes_total", "reason")}),
        ),
        (
            Panel(
                "Answers that went on elsewhere, by cause",
                "reqps",
                {"{{cause}}": _rate("streams_continued_total", "cause")},
            ),
            Panel(
                "Sent again",
                "reqps",
                {"retried": _rate("retries_total"), "hedged": _rate("hedges_total")},
            ),
            Panel(
                "Longest stall of an event loop",
                "s",
                {"{{pod}}": _now("max", "loop_lag_max_seconds", "pod")},
            ),
        ),
    ),
)

POOLS = Board(
    "splitserve-pools",
    "splitserve: pools",
    (
        (
            Panel(
                "Workers",
                "short",
                {"{{role}} {{state}}": _WORKERS},
            ),
            Panel(
                "Pressure: 1 is at the budget",
                "short",
                {"{{role}} {{signal}}": _now("max", "pool_pressure_ratio", "role", "signal")},
            ),
            Panel(
                "Restarts, by cause",
                "short",
                {"{{pool}} {{cause}}": _rate("restarts_total", "pool", "cause")},
            ),
        ),
        (
            Panel(
                "Sequences",
                "short",
                {
                    "{{splitserve_pool}} {{state}}": _now(
                        "sum", "worker_sequences", "splitserve_pool", "state"
                    )
                },
            ),
            Panel(
                "KV blocks, by state",
                "short",
                {
                    "{{splitserve_pool}} {{state}}": _now(
                        "sum", "worker_kv_blocks", "splitserve_pool", "state"
                    )
                },
            ),
            Panel(
                "Sequences set back for blocks",
                "short",
                {"{{splitserve_pool}}": _rate("worker_preemptions_total", "splitserve_pool")},
            ),
        ),
        (
            Panel(
                "Prompts computed, tokens a second of a worker",
                "short",
                {"{{pod}}": _now("max", "worker_prefill_tokens_per_second", "pod")},
            ),
            Panel(
                "A decode step", "s", {"{{pod}}": _now("max", "worker_decode_step_seconds", "pod")}
            ),
            Panel(
                "Idle between steps, p99",
                "s",
                {"{{pod}}": _now("max", "worker_step_gap_p99_seconds", "pod")},
            ),
        ),
        (
            Panel(
                "KV read from prefill workers",
                "Bps",
                {"{{splitserve_pool}}": _rate("worker_kv_transfer_bytes_total", "splitserve_pool")},
            ),
            Panel("One read", "s", _percentiles("worker_kv_transfer_seconds")),
            Panel(
                "Sources given up, by reason",
                "reqps",
                {"{{reason}}": _rate("worker_kv_transfer_failures_total", "reason")},
            ),
        ),
    ),
)

TENANTS = Board(
    "splitserve-tenants",
    "splitserve: classes of tenants, and their limits",
    (
        (
            Panel("In line", "short", {"{{class}}": _now("sum", "class_queued_requests", "class")}),
            Panel(
                "Time to first token, p95",
                "s",
                {"{{class}}": _quantile(0.95, "class_ttft_seconds", "class")},
            ),
            Panel(
                "Tokens",
                "short",
                {"{{class}} {{kind}}": _rate("class_tokens_total", "class", "kind")},
            ),
        ),
        (
            Panel(
                "Refused",
                "reqps",
                {"{{class}} {{reason}}": _rate("refusals_total", "class", "reason")},
            ),
            Panel(
                "Over the limits of their key",
                "reqps",
                {"{{class}} {{limit}}": _rate("limited_requests_total", "class", "limit")},
            ),
            Panel(
                "Gave way to a higher class",
                "reqps",
                {"{{class}}": _rate("preempted_requests_total", "class")},
            ),
        ),
        (
            Panel(
                "Steps of --degrade in force", "short", {"steps": _now("max", "degradation_steps")}
            ),
            Panel("The store answers", "bool", {"{{pod}}": _now("max", "router_store_up", "pod")}),
            Panel("Counted at one router alone", "reqps", {"takes": _rate("limits_alone_total")}),
        ),
    ),
)

BOARDS = (REQUESTS, POOLS, TENANTS)


def main(folder: Path) -> None:
    """Writes all boards."""
    for board in BOARDS:
        path = folder / f"{board.uid.removeprefix('splitserve-')}.json"
        path.write_text(json.dumps(board_json(board), indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
