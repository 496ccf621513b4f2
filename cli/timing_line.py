"""Where an answer's time went, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.terminal_text import size_in_words

_STAGES = ("queue", "prefill", "kv", "decode")


def timing_line(timing: Mapping[str, Any], usage: Mapping[str, Any]) -> str:
    """From the fields of `splitserve.v1.Timing` and OpenAI's usage; absent ones count as 0.

    ttft 41 ms = queue 1 + prefill 18 + kv 3 + decode 19 | itl 6.2 ms | kv 128 KiB nixl/UCX |
    cached 0/9 | P prefill-0 -> D decode-0
    """
    if not timing:
        return f"the server gave no timings | {_cached(usage)}"
    stages = " + ".join(f"{name} {_ms(timing.get(f'{name}_ms', 0.0))}" for name in _STAGES)
    return " | ".join(
        [
            f"ttft {_ms(timing.get('ttft_ms', 0.0))} ms = {stages}",
            f"itl {timing.get('itl_ms', 0.0):.1f} ms",
            _transfer(timing),
            _cached(usage),
            _workers(timing),
        ]
    )


def _ms(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 or value < 0.05 else f"{value:.1f}"


def _transfer(timing: Mapping[str, Any]) -> str:
    if not timing.get("kv_bytes"):
        return "kv none"
    return f"kv {size_in_words(timing['kv_bytes'])} {timing.get('kv_transport', '')}".rstrip()


def _cached(usage: Mapping[str, Any]) -> str:
    details = usage.get("prompt_tokens_details") or {}
    return f"cached {details.get('cached_tokens', 0)}/{usage.get('prompt_tokens', 0)}"


def _workers(timing: Mapping[str, Any]) -> str:
    decode = timing.get("decode_worker") or "?"
    prefill = timing.get("prefill_worker")
    return f"P {prefill} -> D {decode}" if prefill else f"D {decode} alone"
