"""vLLM's /metrics, and of it what the router asks for: load, size of the cache, late reads."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass

from cluster.generation import EngineLoad

_NAMES = (
    "process_start_time_seconds",
    "vllm:cache_config_info",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:inter_token_latency_seconds_sum",
    "vllm:inter_token_latency_seconds_count",
    "vllm:nixl_num_notifications_after_expiry_total",
)
_LINE = re.compile(
    rf"^({'|'.join(map(re.escape, _NAMES))})(?:\{{(.*)\}})? (\S+)$".encode(), re.MULTILINE
)
_LABEL = re.compile(rb'(\w{1,64})="([^"]{0,256})"')
"""Bounded: it looks at each place of a long text again."""
MAX_PAGE_BYTES = 1024 * 1024
"""What comes after them is not looked at; vLLM's have 50 KB."""
MAX_COUNT = 2**31 - 1
"""Records on the wire hold no larger ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerNumbers:
    """At one moment, summed over its engines."""

    started: str = ""
    """When its process began, as it says; empty where it does not."""
    block_size_tokens: int = 0
    """0: it does not say."""
    total_blocks: int = 0
    used_share: float = 0.0
    num_running: int = 0
    num_waiting: int = 0
    num_preemptions: int | None = None
    """Running requests that lost their blocks, each counted with an output of its own that follows;
    None: it has no such counter."""
    num_tokens: float | None = None
    """Of prompts and answers, that it has ever computed; None: it has no such counters."""
    token_gap_s: float = 0.0
    """Between a choice's tokens, over all that it ever made, and how many these were."""
    num_token_gaps: float = 0.0
    late_reads: int | None = None
    """Blocks that were read, or may have been, after their lease; None: it has no such counter."""

    def show_no_preemption_since(self, before: ServerNumbers) -> bool:
        """False where they do not say, too, and of another process."""
        is_counted = self.num_preemptions is not None and self.started == before.started
        return is_counted and self.num_preemptions == before.num_preemptions

    def load(self, before: ServerNumbers | None) -> EngineLoad:
        """As the fleet knows it; `before`: its numbers of the last look."""
        used = math.ceil(self.total_blocks * min(1.0, self.used_share))
        return EngineLoad(
            num_running=self.num_running,
            num_waiting=self.num_waiting,
            total_blocks=self.total_blocks,
            free_blocks=self.total_blocks - used,
            active_blocks=used,
            num_preemptions=self.num_preemptions or 0,
            decode_step_ms=self._step_ms(before),
        )

    def _step_ms(self, before: ServerNumbers | None) -> float:
        """Mean gap between tokens since the last look; of all time where there was none."""
        num, gap_s = self.num_token_gaps, self.token_gap_s
        if before is not None and num > before.num_token_gaps:
            num, gap_s = num - before.num_token_gaps, gap_s - before.token_gap_s
        return max(0.0, gap_s / num * 1000) if num > 0 else 0.0


def numbers_in(page: bytes) -> ServerNumbers:
    """What is missing, or is no number, counts as not said."""
    sums: defaultdict[str, float] = defaultdict(float)
    labels: dict[str, str] = {}
    shares: list[float] = []
    for name, label_text, value in _LINE.findall(_bounded(page)):
        number = _number(value)
        sums[name.decode()] += number
        if name == b"vllm:kv_cache_usage_perc":
            shares.append(number)
        elif name == b"vllm:cache_config_info":
            found = {k.decode(): v.decode(errors="replace") for k, v in _LABEL.findall(label_text)}
            sums["blocks"] += _count(found.get("num_gpu_blocks"))
            labels |= found
    made = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
    late = "vllm:nixl_num_notifications_after_expiry_total"
    preempted = "vllm:num_preemptions_total"
    return ServerNumbers(
        started=_started(sums),
        block_size_tokens=_count(labels.get("block_size")),
        total_blocks=_clamped(sums["blocks"]),
        used_share=sum(shares) / len(shares) if shares else 0.0,
        num_running=_clamped(sums["vllm:num_requests_running"]),
        num_waiting=_clamped(sums["vllm:num_requests_waiting"]),
        num_preemptions=_clamped(sums[preempted]) if preempted in sums else None,
        num_tokens=sum(sums[name] for name in made) if made[1] in sums else None,
        token_gap_s=sums["vllm:inter_token_latency_seconds_sum"],
        num_token_gaps=sums["vllm:inter_token_latency_seconds_count"],
        late_reads=int(sums[late]) if late in sums else None,
    )


def _bounded(page: bytes) -> bytes:
    """Whole lines only: the rest of a number is another one."""
    return page if len(page) <= MAX_PAGE_BYTES else page[:MAX_PAGE_BYTES].rpartition(b"\n")[0]


def _clamped(number: float) -> int:
    return min(int(number), MAX_COUNT)


def _started(sums: dict[str, float]) -> str:
    start_s = sums.get("process_start_time_seconds", 0.0)
    return f"{start_s:.2f}" if start_s else ""


def _number(value: bytes) -> float:
    try:
        number = float(value)
    except ValueError:
        return 0.0
    return number if 0.0 <= number < 2**53 else 0.0


def _count(text: str | None) -> int:
    return _clamped(int(text)) if text is not None and text.isdecimal() else 0
