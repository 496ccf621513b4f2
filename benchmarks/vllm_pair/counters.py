"""What servers and the router count, by their pages of metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from benchmarks.vllm_pair.servers import VllmServers

LATE = "vllm:nixl_num_notifications_after_expiry_total"
ROUTERS_LATE = "splitserve_vllm_late_reads_total"
_PROMPTS, _BY_SOURCE = "vllm:prompt_tokens_total", "vllm:prompt_tokens_by_source_total"
PAGE_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """Of all prompts so far."""

    asked: float
    """Each request once: by the decode server, at which it ends."""
    computed: float
    """By any server."""

    def hit_rate_since(self, before: PromptTokens) -> float:
        """Tokens that nobody computed, in percent."""
        asked, computed = self.asked - before.asked, self.computed - before.computed
        return 100 * (1 - computed / max(1.0, asked))


def total(urls: Sequence[str], name: str, label: str = "") -> float:
    """Over servers and labels; of those lines that have `label`. Raises httpx.HTTPError."""
    pages = (httpx.get(f"{url}/metrics", timeout=PAGE_TIMEOUT_S).text for url in urls)
    lines = (line for page in pages for line in page.splitlines() if label in line)
    found = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.split()[-1]) for line in found)


def prompt_tokens(servers: VllmServers) -> PromptTokens:
    """By now. Raises httpx.HTTPError."""
    everyone = (*servers.prefill, servers.decode)
    return PromptTokens(
        asked=total([servers.decode], _PROMPTS),
        computed=total(everyone, _BY_SOURCE, 'source="local_compute"'),
    )
