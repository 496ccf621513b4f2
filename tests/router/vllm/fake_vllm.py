"""A vLLM server behind a VllmWire: a wrong text with a good status, where the real one gives one.

What it computes is kept for a reader until its lease has passed. Then the blocks are the next
request's, and who reads them late gets that one's answer. What it has read it caches, right or
wrong; of several choices each reads by itself. Whom it preempts it begins anew, of what it has
cached by then. Its counter of late reads moves at once, or without
`counts_late` never while a test looks: the real one's moves when it next works.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cluster.deadline import Clock
from cluster.errors import WorkerLost, WorkerSilent
from router.vllm.event_lines import DONE
from router.vllm.wire import NO_HEADERS, SentHeaders, VllmAnswer, check
from tests.router.vllm import recorded

Body = dict[str, Any]


def answer_to(prompt: list[int], num_tokens: int) -> list[int]:
    """The tokens that the model makes of a prompt, and of no other."""
    return [_token_at(prompt, place) for place in range(num_tokens)]


def _token_at(prompt: list[int], place: int) -> int:
    return 100 + (sum(prompt) * 31 + place) % 10_000


def refusal(status: int, message: str) -> VllmAnswer:
    return VllmAnswer(status, msgspec.json.encode({"error": {"message": message, "code": status}}))


class PreemptionCount(enum.Enum):
    """When a preempted request is counted."""

    AT_ONCE = "at once"
    """With an output that was on its way."""
    WITH_NEXT = "with next"
    """With its next output, once it is resumed."""
    NEVER = "never"
    """The page has no such counter."""


@dataclass(kw_only=True)
class Manners:
    """How it behaves; a test changes them."""

    prefill_s: float = 0.5
    token_s: float = 0.02
    door_s: float = 0.0
    """A request waits so long before the engine knows of it."""
    lease_s: float = 30.0
    refuses: VllmAnswer | None = None
    """What it answers to every request."""
    refuses_blocks: VllmAnswer | None = None
    """What it answers to who has blocks to read."""
    lacks: str | None = None
    """A parameter that it does not tell."""
    breaks_after: int | None = None
    """Tokens after which its connection breaks."""
    preempts_at: int | None = None
    """The place of a token before which a request loses its blocks, which are evicted; it has new
    ones once it is `resumed`."""
    counts_preempted: PreemptionCount = PreemptionCount.WITH_NEXT
    says: list[bytes] | None = None
    """Events instead of its own."""
    says_later: list[bytes] | None = None
    """And these a second after them."""
    is_well: bool = True
    is_there: bool = True
    is_silent: bool = False
    """Looks at it are taken and wait for as long as they may."""
    is_slow: bool = False
    """It says late that it is well, and has no time for its numbers."""
    look_s: float = 0.0
    """It answers each look, so late."""
    counts_late: bool = True
    started_s: float = 1.5e9
    says_when_started: bool = True
    num_tokens: int | None = None
    """That it has made, by its page of metrics; None: it does not say."""
    ends_at_once: bool = False
    """The answer has an end and no token."""
    tokenizes: list[int] | None = None
    """Every text; None: as the router's model."""


@dataclass
class FakeVllm:
    """`asked` are the bodies that came, `aborted` how many were broken off."""

    clock: Clock
    name: str = "fake"
    peers: dict[str, FakeVllm] = field(default_factory=dict)
    """By engine id: whose blocks it can read."""
    manners: Manners = field(default_factory=Manners)
    asked: list[Body] = field(default_factory=list)
    told: list[dict[str, str]] = field(default_factory=list)
    """SentHeaders that came with what was posted."""
    aborted: int = 0
    late_reads: int = 0
    num_preempted: int = 0
    num_looks: int = 0
    """Pages of metrics that were asked for."""
    resumed: asyncio.Event = field(default_factory=asyncio.Event)
    is_closed: bool = False
    _cached: dict[tuple[str, tuple[int, ...]], list[int]] = field(default_factory=dict)
    """By salt and prompt: what its blocks hold."""
    _kept: dict[str, tuple[list[int], float]] = field(default_factory=dict)

    async def get(self, path: str, *, timeout_s: float) -> VllmAnswer:
        self._check_there()
        await asyncio.sleep(self.manners.look_s)
        if self.manners.is_slow and path == "/health":
            await asyncio.sleep(0.6 * timeout_s)
        elif self.manners.is_silent or self.manners.is_slow:
            await asyncio.sleep(timeout_s)
            raise WorkerSilent(f"{self.name} gave no whole answer in {timeout_s} s")
        if path == "/health":
            return VllmAnswer(200 if self.manners.is_well else 503, b"")
        if path == "/metrics":
            self.num_looks += 1
            return VllmAnswer(200, self._metrics())
        known = {"/version": recorded.VERSION, "/v1/models": recorded.MODELS}
        return VllmAnswer(200, known[path]) if path in known else refusal(404, "Not Found")

    async def post(
        self, path: str, body: Body, *, timeout_s: float | None, headers: SentHeaders = NO_HEADERS
    ) -> VllmAnswer:
        self._check_there()
        self.told.append(dict(headers))
        if path == "/tokenize":
            told = self.manners.tokenizes or [ord(letter) for letter in body["prompt"]]
            return VllmAnswer(200, msgspec.json.encode({"tokens": told}))
        return await self._abortable(self._prefilled(body))

    async def stream(
        self, path: str, body: Body, headers: SentHeaders = NO_HEADERS
    ) -> AsyncGenerator[list[bytes], None]:
        self._check_there()
        self.told.append(dict(headers))
        self.asked.append(body)
        has_ended = False
        try:
            async for events in self._answered(body):
                has_ended = DONE in events
                yield events
        finally:
            self.aborted += not has_ended

    async def close(self) -> None:
        self.is_closed = True

    def heartbeat(self, request_id: str) -> None:
        """A reader knows the request: its lease is renewed, if it has not passed."""
        prompt, until_s = self._kept[request_id]
        if self.clock() < until_s:
            self._kept[request_id] = prompt, self.clock() + self.manners.lease_s

    def read(self, request_id: str) -> list[int]:
        """The blocks as they are now: after the first reader's word they are free again."""
        prompt, until_s = self._kept.get(request_id, ([], 0.0))
        self._kept[request_id] = prompt, 0.0
        if self.clock() < until_s:
            return prompt
        self.late_reads += self.manners.counts_late
        return [9, 9, 9]

    async def _abortable(self, work: Any) -> VllmAnswer:
        try:
            answer: VllmAnswer = await work
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        return answer

    async def _prefilled(self, body: Body) -> VllmAnswer:
        self.asked.append(body)
        if self.manners.refuses is not None:
            return self.manners.refuses
        await asyncio.sleep(self.manners.prefill_s)
        request_id = f"cmpl-{len(self.asked)}"
        self._kept[request_id] = body["prompt"], self.clock() + self.manners.lease_s
        if not body["ignore_eos"] or answer_to(body["prompt"], 1)[0] in body["stop_token_ids"]:
            return VllmAnswer(200, b'{"choices":[{"finish_reason":"stop"}]}')  # as older ones do
        answer = msgspec.json.decode(recorded.PREFILLED)
        told = answer["kv_transfer_params"]
        told |= {"remote_engine_id": self.name, "remote_request_id": request_id}
        told.pop(self.manners.lacks, None)
        return VllmAnswer(200, msgspec.json.encode(answer))

    async def _answered(self, body: Body) -> AsyncGenerator[list[bytes], None]:
        manners = self.manners
        blocks = body.get("kv_transfer_params")
        refused = manners.refuses or (manners.refuses_blocks if blocks else None)
        if refused is not None:
            check(refused, self.name)
        await asyncio.sleep(manners.door_s)
        if manners.says is not None:
            yield manners.says
            if manners.says_later is not None:
                await asyncio.sleep(1.0)
                yield manners.says_later
            return
        name, num = (body["cache_salt"], tuple(body["prompt"])), max(1, body["n"])
        others: list[list[int]] = []
        if name not in self._cached:
            first, *others = [await self._prompt_of(body["prompt"], blocks) for _ in range(num)]
            self._cached[name] = first
        prompts = [self._cached[name], *others] if others else [self._cached[name]] * num
        if manners.ends_at_once:
            is_right = all(prompt == body["prompt"] for prompt in prompts)
            yield [_chunk(0, 0, is_last=True) if is_right else _END, _usage(1, 0), DONE]
            return
        for place in range(body["max_tokens"]):
            if place == manners.breaks_after:
                raise WorkerLost(f"{self.name} broke off")
            if place == manners.preempts_at:
                prompts = await self._preempted(name, prompts)
            await asyncio.sleep(manners.token_s)
            is_last = place == body["max_tokens"] - 1
            tokens = [_token_at(prompt, place) for prompt in prompts]
            yield [_chunk(n, token, is_last=is_last) for n, token in enumerate(tokens)]
        yield [_usage(len(body["prompt"]), body["max_tokens"] * num), DONE]

    async def _preempted(
        self, name: tuple[str, tuple[int, ...]], prompts: list[list[int]]
    ) -> list[list[int]]:
        """What its new blocks hold."""
        self._cached.pop(name, None)
        counts = self.manners.counts_preempted
        self.num_preempted += counts is PreemptionCount.AT_ONCE
        await self.resumed.wait()
        self.num_preempted += counts is PreemptionCount.WITH_NEXT
        return [self._cached.get(name, prompt) for prompt in prompts]

    async def _prompt_of(self, prompt: list[int], blocks: Body | None) -> list[int]:
        if not blocks:
            await asyncio.sleep(self.manners.prefill_s)
            return prompt
        if "remote_engine_id" not in blocks:
            await asyncio.Event().wait()  # its engine is dead, and it says nothing of that
        peer = self.peers[blocks["remote_engine_id"]]
        peer.heartbeat(blocks["remote_request_id"])
        return peer.read(blocks["remote_request_id"])

    def _check_there(self) -> None:
        if not self.manners.is_there:
            raise WorkerLost(f"{self.name} cannot be reached")

    def _metrics(self) -> bytes:
        late = b"vllm:nixl_num_notifications_after_expiry_total{} %d\n" % self.late_reads
        if self.manners.counts_preempted is not PreemptionCount.NEVER:
            late += b"vllm:num_preemptions_total{} %d\n" % self.num_preempted
        made = self.manners.num_tokens
        if made is not None:
            late += b"vllm:generation_tokens_total{} %d\n" % made
        manners = self.manners
        began = b"process_start_time_seconds %.1f\n" % manners.started_s
        return (
            (began if manners.says_when_started else b"")
            + b'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n'
            + b'vllm:kv_cache_usage_perc{engine="0"} 0.5\n'
            + late
        )


def _chunk(choice: int, token: int, *, is_last: bool) -> bytes:
    reason = "length" if is_last else None
    told = {"index": choice, "text": "x", "token_ids": [token], "finish_reason": reason}
    return msgspec.json.encode({"id": "cmpl", "choices": [told]})


_END = b'{"id":"cmpl","choices":[{"index":0,"text":"","finish_reason":"stop"}]}'


def _usage(num_prompt: int, num_made: int) -> bytes:
    usage = {"prompt_tokens": num_prompt, "completion_tokens": num_made}
    details = {"prompt_tokens_details": {"cached_tokens": 1}}
    return msgspec.json.encode({"id": "cmpl", "choices": [], "usage": usage | details})
