"""What crosses between a worker's server process and its engine process. No torch here.

    server  --- Command -->  engine          msgpack over a local ZMQ socket, one per message
    server  <-- Frame -----  engine          one per step, for all requests at once
    server  <-- Beat ------  engine          between steps, twice a second
    server  <-- AwaitsRanks  engine          in a step that waits for other ranks, as often

A request is submitted once and ends with exactly one `RequestEnded`. In between, by prefill mode:

    LOCAL    tokens...
    REMOTE   Reserved; then the server delivers blocks (Deliver) and the first tokens (Seed);
             decoding starts when all prompt blocks and the first token are there. PrefillLocally
             gives up on the remote side: the engine goes on from the longest verified prefix.
    EXPORT   Prefilled, once per chunk; tokens (the first of each choice); then the blocks stay
             pinned until ReleaseExport, which ends the request.
             LOCAL, EXPORT: PromptScored with each chunk, where `prompt_logprobs` asks for it.
    CACHED   Started, with how much of it is cached; Prefilled, once, unless that is nothing; then
             as EXPORT.
    KEEP     Reserved; Deliver...; what was delivered is in the prefix cache when Cancel ends it.
    POOL     Started; Pooled, which ends the request.
"""

from __future__ import annotations

import msgspec

from cluster.block_span import BlockSpan
from cluster.cache_change import CacheChange, CachedBlock
from cluster.generation import EngineLoad, FinishReason, GeneratedToken, PromptToken, Usage
from cluster.kv_peer import KvPeer
from cluster.rank_facts import RankFacts, RankWait
from engine.contract.adapters import AdapterNews
from engine.contract.draft_numbers import NO_DRAFTS, DraftNumbers, RequestDrafts
from engine.contract.expert_numbers import ExpertNumbers
from engine.contract.warm_blocks import WarmBlocks
from engine.contract.weight_format import WeightFormat


class TokenEvent(msgspec.Struct, frozen=True):
    """One new token of one choice."""

    request_id: str
    choice: int
    token: GeneratedToken
    finish_reason: FinishReason | None = None


class PromptScored(msgspec.Struct, frozen=True):
    """Tokens of a prompt with their logprobs, in order; all come before its first TokenEvent.

    `first_index` is the place in the prompt of the first of them: 1 at first, as nothing comes
    before token 0 that could score it.
    """

    request_id: str
    first_index: int
    tokens: list[PromptToken]


class Pooled(msgspec.Struct, frozen=True):
    """What became of a POOL request, in the frame of its end."""

    request_id: str
    values: bytes
    """float32, little-endian."""


class Reserved(msgspec.Struct, frozen=True):
    """A REMOTE request has its blocks; those before `first_block` were in the prefix cache."""

    request_id: str
    first_block: int
    block_ids: list[int]
    """The slots of all prompt blocks of the sequence, index 0 first."""


class Prefilled(msgspec.Struct, frozen=True):
    """Blocks of an EXPORT request that will not change any more. The exporter fills in the rest.

    None is sent with, or after, the end of a request whose first tokens were also its last.
    """

    request_id: str
    span: BlockSpan
    digest_tokens: int = 0
    """As the request has it."""


class Fetched(msgspec.Struct, frozen=True):
    """The outcome of a Fetch, for timings and for the choice of the next source."""

    request_id: str
    incarnation: str
    first_index: int
    num_blocks: int
    """Verified and delivered, from `first_index` on; the others of the Fetch may be read again."""
    num_bytes: int
    duration_ms: float
    error: str = ""
    """Empty when every block verified; otherwise what failed."""
    frame_delay_ms: float = 0.0
    """How long ago that was when the frame left: the step in between is not the transfer's."""


class Started(msgspec.Struct, frozen=True):
    """A request's first chunk was scheduled: its queueing is over."""

    request_id: str
    cached_tokens: int
    queue_ms: float = 0.0
    """From Submit until then: the frame comes only after the step that computed the chunk."""


class PromptComputed(msgspec.Struct, frozen=True, kw_only=True):
    """A LOCAL or REMOTE request has its first tokens, which are in the same frame."""

    request_id: str
    cached_tokens: int
    queue_ms: float
    prefill_ms: float
    """Both as in RequestEnded."""


class Searched(msgspec.Struct, frozen=True):
    """A beam search has come one token further."""

    request_id: str
    num_tokens: int
    """That all of its beams have got, since it last began."""


class QueuePlace(msgspec.Struct, frozen=True):
    """Where an EXPORT request's prompt stands, said when that has changed."""

    request_id: str
    tokens_ahead: int
    """Prompt tokens to compute of what came before it, and its own."""


class RequestEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The last word on a request. `error_code` is empty on success."""

    request_id: str
    usage: Usage
    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    drafts: RequestDrafts = NO_DRAFTS
    error_code: str = ""
    error_message: str = ""

    @property
    def draft_tokens(self) -> int:
        """Guessed and verified, over all choices."""
        return sum(self.drafts.tried)

    @property
    def accepted_draft_tokens(self) -> int:
        """Of those, the ones that were right."""
        return sum(self.drafts.kept)


class Inspection(msgspec.Struct, frozen=True):
    """The answer to Inspect. `snapshot` lists live cached blocks, parents first."""

    token: int
    violations: list[str]
    snapshot: list[CachedBlock]
    warm: WarmBlocks = WarmBlocks()


class Frame(msgspec.Struct, kw_only=True):
    """What one step produced."""

    tokens: list[TokenEvent] = []
    scored: list[PromptScored] = []
    reserved: list[Reserved] = []
    started: list[Started] = []
    computed: list[PromptComputed] = []
    searched: list[Searched] = []
    prefilled: list[Prefilled] = []
    pooled: list[Pooled] = []
    fetched: list[Fetched] = []
    places: list[QueuePlace] = []
    ended: list[RequestEnded] = []
    cache: CacheChange | None = None
    inspections: list[Inspection] = []
    load: EngineLoad | None = None
    experts: ExpertNumbers | None = None
    """When they have changed."""
    adapters: list[AdapterNews] = []
    draft_numbers: DraftNumbers | None = None
    """When they have changed, with the load."""
    kv_transport: str = ""
    """The transport in use, in words, once it is known."""
    rank_waits: list[RankWait] = []
    """Of an engine of several ranks, with its load."""

    @property
    def is_empty(self) -> bool:
        """True when nobody would miss this frame."""
        return not (
            self.tokens
            or self.scored
            or self.reserved
            or self.started
            or self.computed
            or self.searched
            or self.prefilled
            or self.pooled
            or self.fetched
            or self.places
            or self.ended
            or self.cache
            or self.inspections
            or self.load
            or self.experts
            or self.adapters
        )


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine's machine has made of the spec."""

    weights: WeightFormat
    """The form in which the device holds the matrices: another one gives other keys and values."""
    kernel_set: str = "none"
    num_native_calls: int = 0
    """Of a native library, in a step; 0: it goes kernel by kernel."""
    why_by_kernels: str = ""
    """In words; empty where a step is native."""
    has_alike_rows: bool = False
    """A row has the same bits in whatever batch it is computed."""

    @property
    def kernels(self) -> str:
        """For the log: which kernels run, and how a step reaches them."""
        if self.num_native_calls:
            return f"{self.kernel_set}, {self.num_native_calls} native call(s) per step"
        why = f": {self.why_by_kernels}" if self.why_by_kernels else ""
        return f"{self.kernel_set}, kernel by kernel{why}"


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """First message of an engine process: it has loaded its model."""

    pid: int
    loaded: Loaded
    total_blocks: int
    max_context_tokens: int
    vocab_size: int
    peer: KvPeer | None
    """Where this engine's pool can be read; None when it cannot export."""
    kv_transport: str
    load_phases_ms: dict[str, float] = {}
    ranks: list[RankFacts] = []
    """In order; the first is this process."""


class LoadProgress(msgspec.Struct, frozen=True, tag=True):
    """While starting: what the process is at."""

    phase: str
    fraction: float


class EngineFailed(msgspec.Struct, frozen=True, tag=True):
    """Instead of Ready: why the engine cannot start; after it, why it ends."""

    code: str
    message: str


class Stepped(msgspec.Struct, frozen=True, tag=True):
    """A frame on the wire."""

    frame: Frame


class Beat(msgspec.Struct, frozen=True, tag=True):
    """The engine's loop turns: said by the thread that makes the steps, at least once a second but
    for the time of a step."""

    num_turns: int
    """Since the start."""


class AwaitsRanks(msgspec.Struct, frozen=True, tag=True):
    """The thread that makes the steps waits in a collective for ranks that live: said again and
    again by the one that watches them, no longer than a collective may take. A sign of work, and no
    turn: a step that never ends is one, whatever it waits for."""


EngineMessage = Ready | LoadProgress | EngineFailed | Stepped | Beat | AwaitsRanks
