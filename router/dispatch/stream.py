"""A request as the dispatcher sees it, and what comes back: tokens per choice, then one summary."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import cached_property
from typing import Protocol

import msgspec

from cluster.adapter import Adapter
from cluster.block_hash import cache_root, pack_tokens
from cluster.errors import SplitserveError
from cluster.generation import BegunChoice, PromptToken, Timing, Usage
from cluster.identity import Role, WorkerKey
from cluster.sampling import SamplingParams
from router.dispatch.first_part import FirstPart
from router.dispatch.time_limits import TimeLimits
from router.fleet.token_taker import TokenTaker
from router.fleet.unread import ChoiceTokens as ChoiceTokens
from router.telemetry.decisions import DecisionLog
from router.telemetry.request_arrival import RequestArrival
from router.telemetry.request_trace import RequestTrace
from router.tenants.priority import Priority
from router.tenants.tenant import Tenant
from router.text.choice_count import ChoiceCount


class Newcomer(msgspec.Struct, frozen=True):
    """A request that nothing has been read of but its head."""

    request_id: str
    tenant: Tenant
    limits: TimeLimits
    """As its head says them: its body may name a sooner deadline, or one where there is none."""
    is_pooled: bool = False
    """An embedding or a score is wanted: it waits in the other line."""


class AnswerKeeper(Protocol):
    """Keeps what another connection needs to go on with an answer. All calls from the loop."""

    def streams(self) -> None:
        """Its connection waits for tokens from now on, in a line too. Once, before all other
        calls. Raises ResumedElsewhere, as `relayed` does."""

    def begun(self, first_part: FirstPart, max_tokens: int) -> None:
        """The first token of a worker comes next. Once for each; an answer is as long as its first
        one lets it be, and of later ones only what a seed draws there is news."""

    @property
    def is_behind(self) -> bool:
        """Its client has more of it, of an earlier connection, than was told again here so far."""
        ...

    def relayed(self, event: ChoiceTokens) -> None:
        """These are about to be told. Raises ResumedElsewhere where somebody else goes on with the
        answer: then its client here gets no more of it."""

    def completed(self, end: Completed) -> None:
        """All is told, but for this."""

    def left(self, error: SplitserveError | None) -> None:
        """The connection gets no more of it: because of `error`, or because it broke, or has all.
        Once, and after all other calls."""


class PoolWish(msgspec.Struct, frozen=True):
    """What a prompt is to become, in place of tokens."""

    pooling: str
    """Of the workers that it may go to: the word of a PoolingKind."""
    dimensions: int | None = None
    """Values that an embedding is cut to; None: it is told whole."""


class RoutedRequest(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A checked, tokenized request: `sampling.seed` and `sampling.max_tokens` are resolved."""

    request_id: str
    token_ids: list[int]
    """The prompt; at least one token."""
    sampling: SamplingParams
    is_default_length: bool = False
    """`sampling.max_tokens` was not asked for: a route may cut it to what its worker can hold."""
    tenant: str = ""
    """Who asks, as the server knows it: tenants share the queue fairly."""
    weight: float = 1.0
    """Of the tenant's share."""
    priority: Priority = Priority.STANDARD
    expected_tokens: int | None = None
    """How long a choice will probably get, and seldom longer; None: as long as it may."""
    tenant_salt: str = ""
    """The tenant and the client's own salt; keeps prefix caches apart, and does nothing else."""
    limits: TimeLimits
    attempt: int = 1
    """Counted where a worker may have it twice: each has a name of its own there."""
    resume: tuple[BegunChoice, ...] = ()
    """Of an answer that goes on: the choices that are not over, and the tokens that they have."""
    first_part: FirstPart | None = None
    """Of an answer that goes on for another connection."""
    keeper: AnswerKeeper | None = None
    """Of an answer that another connection may go on with."""
    trace: RequestTrace | None = None
    """None: it is not traced."""
    prediction: list[int] = []
    """What the client expects of the answer, from its beginning: workers may guess by it."""
    num_inputs: int = 1
    """Of the client's request: others than this one follow it."""
    follows: str = ""
    """The id of that input: no limit of newcomers holds for this one, and its way is not kept."""
    pool: PoolWish | None = None
    """None: tokens are wanted. Else `sampling.max_tokens` is 0, and a prefill worker answers."""
    adapter: Adapter | None = None
    """That very version computes it, prompt and answer; until it is sent, what its name stands for
    may change. None: the model alone."""
    apart_at: frozenset[WorkerKey] = frozenset()
    """Workers that cache requests of its kind apart from all others."""

    @cached_property
    def packed(self) -> bytes:
        """The prompt, and the answer that goes on if it is one, as the index and the names of
        blocks are made from. Who is refused before that is not packed."""
        known = self.token_ids
        if len(self.resume) == 1:
            known = known + self.resume[0].token_ids
        return pack_tokens(known)

    @property
    def attempt_id(self) -> str:
        """What workers know it by. No other request is called so: ids have no tilde."""
        return self.request_id if self.attempt == 1 else f"{self.request_id}~{self.attempt}"

    @property
    def pooling(self) -> str:
        """How it is pooled; empty: tokens are wanted."""
        return "" if self.pool is None else self.pool.pooling

    @property
    def answering(self) -> Role:
        """Who answers it."""
        return Role.DECODE if self.pool is None else Role.PREFILL

    @property
    def num_choices(self) -> int:
        """That get tokens."""
        return len(self.resume) or self.sampling.n

    @property
    def num_sequences(self) -> int:
        """That decode side by side: of a beam search its beams, whatever comes back of them."""
        return len(self.resume) or self.sampling.num_sequences

    def beam_tokens_of(self, num_told: int) -> int:
        """That were made, at least, for so many that are told: beams that are not told were
        computed all the same."""
        return num_told * self.num_sequences // self.num_choices

    @property
    def num_begun_tokens(self) -> int:
        """Of the longest choice that goes on."""
        return max((len(begun.token_ids) for begun in self.resume), default=0)

    @property
    def num_known_tokens(self) -> int:
        """Of the prompt and that choice: what is computed before the next token."""
        return len(self.token_ids) + self.num_begun_tokens

    @property
    def num_tokens_to_compute(self) -> int:
        """Of the prompt, whose blocks are one for all choices, and of all that go on."""
        return len(self.token_ids) + sum(len(begun.token_ids) for begun in self.resume)

    @property
    def max_answer_tokens(self) -> int:
        """Still to come, over all choices."""
        num_begun = sum(len(begun.token_ids) for begun in self.resume)
        return self.num_choices * self.sampling.max_tokens - num_begun

    @property
    def max_stored_tokens(self) -> int:
        """As `max_answer_tokens`, of all that decodes."""
        num_begun = sum(len(begun.token_ids) for begun in self.resume)
        return self.num_sequences * self.sampling.max_tokens - num_begun

    @property
    def max_scored_tokens(self) -> int:
        """Of the prompt, that may come back with a logprob: the first has none."""
        return 0 if self.sampling.prompt_logprobs is None else len(self.token_ids) - 1

    def arrival_in(self, decisions: DecisionLog) -> RequestArrival | None:
        """What it met at the door; None: it is not traced, and too many have come since."""
        if self.trace is not None:
            return self.trace.arrival
        return decisions.arrival_of(self.request_id)

    def going_on(self, begun: Sequence[BegunChoice], limits: TimeLimits) -> RoutedRequest:
        """The rest of it, for another worker; the prompt's scores have been given."""
        sampling = msgspec.structs.replace(self.sampling, prompt_logprobs=None)
        return msgspec.structs.replace(self, resume=tuple(begun), sampling=sampling, limits=limits)

    def namer_at(self, worker: WorkerKey, pairing_key: str) -> str:
        """The pairing by which its blocks are named at a worker of that one: others name there what
        is cached apart, and no request of another kind finds it."""
        return f"{pairing_key} apart" if worker in self.apart_at else pairing_key

    def root_at(self, namer: str) -> bytes:
        """Where the names of its blocks begin."""
        return cache_root(namer, self.tenant_salt, self.adapter_digest)

    @property
    def adapter_digest(self) -> str:
        """Empty: the model alone."""
        return "" if self.adapter is None else self.adapter.digest


class PromptTokens(msgspec.Struct, frozen=True):
    """Scored tokens of the prompt, in order, `first_index` the place of the first; where
    `prompt_logprobs` was asked for, all come before any ChoiceTokens. A request that was sent
    again begins again."""

    first_index: int
    tokens: list[PromptToken]


class PromptCost(msgspec.Struct, frozen=True):
    """What a prompt took, as its worker said with the first tokens."""

    cached_tokens: int
    timing: Timing

    def put_first(self, timing: Timing) -> Timing:
        """That of a worker that went on later, with what was before the first tokens."""
        first = self.timing
        return msgspec.structs.replace(
            timing,
            queue_ms=first.queue_ms,
            prefill_ms=first.prefill_ms,
            kv_ms=first.kv_ms,
            prefill_worker=first.prefill_worker,
            kv_visible_ms=0.0,
        )


class Completed(msgspec.Struct, frozen=True):
    """The last event of a request that succeeded; sent once, after every choice has ended."""

    usage: Usage
    timing: Timing
    untold_tokens: int = 0
    """Of its usage, in choices that the client is not told."""
    adapter_digest: str = ""
    """Of the version that computed it; empty: the model alone."""


StreamEvent = PromptTokens | ChoiceTokens | Completed


class TokenSource(Protocol):
    """What the front of the router needs: the Dispatcher, or a fake of it in tests."""

    def check_room(self, newcomer: Newcomer) -> None:
        """Before a request is read. Raises QueueFull and Hopeless where `generate` would now,
        whatever the request says: its class is not taken, the line is full and it would be last in
        it, or longer than its time. A request that is refused so is counted, and `generate` not
        called for it."""
        ...

    def generate(
        self,
        request: RoutedRequest,
        counts: Sequence[ChoiceCount] | None = None,
        taker: TokenTaker | None = None,
    ) -> AsyncGenerator[StreamEvent, None]:
        """Runs one request: PromptTokens where asked for, ChoiceTokens in order, then exactly one
        Completed, or an error.

        `taker`: may be given ChoiceTokens that come while the iteration waits for the next event,
        but never the first; they are counted as others are, and not given twice. What it raises
        ends the iteration, as a TakerFault.

        `counts`: the reader's, one for each choice; tokens are told to them before they are given.
        A choice that its reader stops gets no more and ends on its worker. Completed's usage has
        the tokens that count. When all choices are over, Completed follows within about a second,
        also when the worker is lost meanwhile: then with the usage and timing that are known here.

        An answer whose worker is lost goes on with another one, where the router is told to: the
        tokens are those that would have come.

        Raises SplitserveError subclasses from the iteration. The caller closes the iterator
        (`await stream.aclose()`, or `contextlib.aclosing`) when its client leaves: that cancels
        the request on the workers.
        """
        ...
