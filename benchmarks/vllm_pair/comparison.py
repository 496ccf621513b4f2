"""The router and vLLM's own order of calls at the same work, at the same servers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.report import Row
from benchmarks.vllm_pair.asking import ERROR, Ask, ask_all, at_one, in_turns
from benchmarks.vllm_pair.counters import LATE, ROUTERS_LATE, prompt_tokens, total
from benchmarks.vllm_pair.late_door import LateDoor
from benchmarks.vllm_pair.late_reads import Wanted, late_answers
from benchmarks.vllm_pair.prompts import shared_prefixes
from benchmarks.vllm_pair.servers import VllmServers
from benchmarks.vllm_pair.verdicts import Verdict, verdicts_on

OURS, THEIRS = "router", "vllms-own-order"
HITS_AT_ONCE = 2


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
    logs: Path
    """Has the router's log, and gets each answer with what that says of it."""

    @property
    def ways(self) -> dict[str, Ask]:
        """By name: the peer first."""
        own_order = in_turns(self.http, self.servers.prefill, self.door.url)
        return {THEIRS: own_order, OURS: at_one(self.http, self.router)}

    async def late(self, num_late: int, most_s: float) -> Compared:
        """Answers while blocks are read after their lease: those of the router have to be right. A
        fourth will do of the peer's."""
        compared = Compared()
        for name, ask, share in ((OURS, self.ways[OURS], 1), (THEIRS, self.ways[THEIRS], 4)):
            before = self._late_counters()
            wanted = Wanted(name, num_late // share, most_s / share)
            got = await late_answers(self.http, ask, self.door, self.servers, wanted)
            counted = {key: n - before[key] for key, n in self._late_counters().items()}
            verdicts = await verdicts_on(self.http, self.servers.prefill, got)
            self._note_late(compared, name, verdicts, counted)
        return compared

    async def hits(self, num_groups: int, num_each: int) -> Compared:
        """How much of prompts behind shared prefixes nobody has to compute."""
        compared, rates = Compared(), dict[str, float]()
        for name, ask in self.ways.items():
            prompts = shared_prefixes(name, num_groups, num_each)
            before = prompt_tokens(self.servers)
            texts = await ask_all(ask, prompts, 1, HITS_AT_ONCE, f"hits-{name}")
            used = prompt_tokens(self.servers)
            rates[name] = used.hit_rate_since(before)
            compared.details[name] = {
                "hit_rate": round(rates[name], 2),
                "prompt_tokens": used.asked - before.asked,
                "errors": sum(text.startswith(ERROR) for text in texts),
            }
            print(f"  {name}: {rates[name]:.1f} % computed by nobody", flush=True)
        lost = rates[THEIRS] - rates[OURS]
        compared.rows.append(Row("hit rate below vLLM's own order", lost, "points", goal=0))
        return compared

    def _late_counters(self) -> dict[str, float]:
        return {
            "late_notifications": total(self.servers.prefill, LATE),
            "routers_late_reads": total([self.router], ROUTERS_LATE),
        }

    def _note_late(
        self,
        compared: Compared,
        name: str,
        verdicts: Sequence[Verdict],
        counted: dict[str, float],
    ) -> None:
        told = [verdict.told(self.logs / "router.log") for verdict in verdicts]
        (self.logs / f"answers-{name}.json").write_text(json.dumps(told, indent=1))
        figures = figures_of(verdicts)
        goal = 0.0 if name == OURS else None
        label = f"{name}: wrong of {figures['num_scored']}, {figures['num_late']} late"
        compared.rows.extend(
            [
                Row(label, figures["num_wrong"], "answers", goal=goal),
                Row(f"{name}: another's facts", figures["num_others_facts"], "answers", goal=goal),
                Row(f"{name}: errors", figures["num_errors"], "requests", goal=goal),
            ]
        )
        wrong = [each for each in told if each["is_wrong"] or each["has_others_facts"]]
        compared.details[name] = {**figures, **counted}
        if name == OURS:
            failed = [each for each in told if each["is_error"]]
            compared.details[name] |= {"wrong": wrong, "failed": failed}


def figures_of(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many of them are what."""
    return {
        "num_answers": len(verdicts),
        "num_late": sum(verdict.answer.is_late for verdict in verdicts),
        "num_scored": sum(verdict.is_scored for verdict in verdicts),
        "num_late_scored": sum(v.is_scored and v.answer.is_late for v in verdicts),
        "num_wrong": sum(verdict.is_wrong for verdict in verdicts),
        "num_others_facts": sum(verdict.has_others_facts for verdict in verdicts),
        "num_errors": sum(verdict.answer.is_error for verdict in verdicts),
    }
