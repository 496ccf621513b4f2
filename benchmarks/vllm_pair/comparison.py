"""The router and vLLM's own order of calls at the same work, at the same servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.report import Row
from benchmarks.vllm_pair.asking import Ask, ask_all, at_one, in_turns
from benchmarks.vllm_pair.counters import LATE, ROUTERS_LATE, prompt_tokens, total
from benchmarks.vllm_pair.late_door import LateDoor
from benchmarks.vllm_pair.late_reads import NEW_TOKENS, LateAnswers, Wanted, late_answers
from benchmarks.vllm_pair.prompts import shared_prefixes
from benchmarks.vllm_pair.servers import VllmServers

OURS, THEIRS = "router", "vLLM's own order"
TRUTH_AT_ONCE = 6
HITS_AT_ONCE = 2
MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Compared:
    """Figures, and what they were made of."""

    rows: list[Row] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contest:
    """Two ways to ask the same servers."""

    http: httpx.AsyncClient
    servers: VllmServers
    door: LateDoor
    router: str

    @property
    def ways(self) -> dict[str, Ask]:
        """By name: the peer first."""
        own_order = in_turns(self.http, self.servers.prefill, self.door.url)
        return {THEIRS: own_order, OURS: at_one(self.http, self.router)}

    async def late(self, num_answers: int) -> Compared:
        """Answers while blocks are read after their lease: those of the router have to be right."""
        compared = Compared()
        for name, ask in self.ways.items():
            before = self._late_counters()
            wanted = Wanted(name, num_answers)
            got = await late_answers(self.http, ask, self.door, self.servers.prefill, wanted)
            counted = {key: n - before[key] for key, n in self._late_counters().items()}
            self._note_late(compared, name, got, await self._right(got.prompts), counted)
        return compared

    async def hits(self, num_groups: int, num_each: int) -> Compared:
        """How much of prompts behind shared prefixes nobody has to compute."""
        compared, rates = Compared(), dict[str, float]()
        for name, ask in self.ways.items():
            prompts = shared_prefixes(name, num_groups, num_each)
            before = prompt_tokens(self.servers)
            texts = await ask_all(ask, prompts, 1, HITS_AT_ONCE)
            used = prompt_tokens(self.servers)
            rates[name] = used.hit_rate_since(before)
            compared.details[name] = {
                "hit_rate": round(rates[name], 2),
                "prompt_tokens": used.asked - before.asked,
                "errors": sum(text.startswith("error:") for text in texts),
            }
            print(f"  {name}: {rates[name]:.1f} % computed by nobody", flush=True)
        lost = rates[THEIRS] - rates[OURS]
        compared.rows.append(Row("hit rate below vLLM's own order", lost, "points", goal=0))
        return compared

    async def _right(self, prompts: Sequence[str]) -> list[str]:
        """As one server answers by itself."""
        alone = at_one(self.http, self.servers.prefill[0])
        return await ask_all(alone, prompts, NEW_TOKENS, TRUTH_AT_ONCE)

    def _late_counters(self) -> dict[str, float]:
        return {
            "late_notifications": total(self.servers.prefill, LATE),
            "routers_late_reads": total([self.router], ROUTERS_LATE),
        }

    def _note_late(
        self,
        compared: Compared,
        name: str,
        got: LateAnswers,
        right: Sequence[str],
        counted: dict[str, float],
    ) -> None:
        wrong = got.wrong(right)
        goal = 0.0 if name == OURS else None
        label = f"{name}: wrong of {len(got.texts)}, {got.num_held} late"
        compared.rows.append(Row(label, len(wrong), "answers", goal=goal))
        compared.rows.append(Row(f"{name}: errors", got.num_errors, "requests", goal=goal))
        compared.details[name] = {
            "num_answers": len(got.texts),
            "num_late": got.num_held,
            "num_wrong": len(wrong),
            "num_errors": got.num_errors,
            "wrong_and_right": wrong[:MOST_SHOWN],
            **counted,
        }
