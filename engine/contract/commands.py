"""What a server process says to its engine process; `messages.py` has the conversation."""

from __future__ import annotations

import enum

import msgspec

from cluster.block_span import BlockRun, BlockSpan
from cluster.generation import BegunChoice, GeneratedToken
from cluster.kv_peer import KvPeer
from cluster.sampling import SamplingParams
from engine.contract.adapters import LoadAdapter, UnloadAdapter


class PrefillMode(enum.StrEnum):
    """Who computes the prompt, and what happens to its blocks."""

    LOCAL = "local"
    REMOTE = "remote"
    EXPORT = "export"
    CACHED = "cached"
    """Nobody: what the prefix cache has of the prompt is exported, and no token is sampled."""
    KEEP = "keep"
    """As REMOTE, for the prefix cache alone: no token is sampled, and everybody goes before it."""
    POOL = "pool"
    """Here, and no token is sampled: hidden states become an embedding or a score."""

    @property
    def is_export(self) -> bool:
        """The blocks are for a reader elsewhere."""
        return self in (PrefillMode.EXPORT, PrefillMode.CACHED)

    @property
    def is_remote(self) -> bool:
        """The blocks come from elsewhere."""
        return self in (PrefillMode.REMOTE, PrefillMode.KEEP)

    @property
    def is_answered(self) -> bool:
        """Choices are decoded here."""
        return self in (PrefillMode.LOCAL, PrefillMode.REMOTE)


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request as an engine sees it. `cache_root` is the root of the block names (16 bytes)."""

    request_id: str
    token_ids: list[int]
    sampling: SamplingParams
    cache_root: bytes
    mode: PrefillMode = PrefillMode.LOCAL
    first_block: int = 0
    """EXPORT: index of the first block that the reader lacks; earlier ones are not announced."""
    digest_tokens: int = 0
    """EXPORT: tokens of a block that each digest is of; 0: all of it."""
    timeout_ms: float
    """What is left of its time when it is submitted; infinity where nobody waits for it."""
    asked_s: float | None = None
    """The limit that the client named, for words; None: it named none."""
    resume: list[BegunChoice] = []
    """Empty: a new request. Else the choices that go on, all others being over: the tokens that
    come next are those that would have come. EXPORT and REMOTE take one choice."""

    adapter: str = ""
    """Digest of the adapter that computes it, prompt and answer; empty: the model alone. KEEP: of
    the one that has computed it, which need not be here."""
    owner: bytes = b""
    """Whose it is: adapters that lack room are given it by turns of their requests' owners."""
    prediction: list[int] = []
    """What the client expects of the answer, from its beginning: tokens to guess from."""
    dimensions: int | None = None
    """POOL: that an embedding is cut to; None: it is told whole."""

    @property
    def choices(self) -> list[int]:
        """Those that get tokens."""
        if self.sampling.beams is not None:
            return [0]  # until the search is over, they are none of its beams
        return [begun.choice for begun in self.resume] or list(range(self.sampling.n))

    @property
    def num_begun_tokens(self) -> int:
        """Of the longest answer that goes on."""
        return max((len(begun.token_ids) for begun in self.resume), default=0)

    @property
    def num_known_tokens(self) -> int:
        """Of the prompt and that answer."""
        return len(self.token_ids) + self.num_begun_tokens


class Submit(msgspec.Struct, frozen=True, tag=True):
    """A new request."""

    request: GenerateRequest


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Ends a request in any state, at once; unknown ids are ignored."""

    request_id: str


class Finish(msgspec.Struct, frozen=True, tag=True):
    """These choices of a LOCAL or REMOTE request have had their last token, as with a stop token.

    A choice that is over, or whose first token is not known yet, is ignored. With its last choice
    the request ends, without an error.
    """

    request_id: str
    choices: list[int]


class Deliver(msgspec.Struct, frozen=True, tag=True):
    """Blocks [first_index, first_index + num_blocks) of a REMOTE request hold verified KV."""

    request_id: str
    first_index: int
    num_blocks: int


class ChoiceToken(msgspec.Struct, frozen=True):
    """One token of one choice."""

    choice: int
    token: GeneratedToken


class Seed(msgspec.Struct, frozen=True, tag=True):
    """The first token of every choice of a REMOTE request, sampled by the prefill worker; of one
    that goes on, its next one.

    The engine answers with a TokenEvent for each at once, before the KV is complete, and applies
    the rules for the end of a choice: the server relays the engine's frames and nothing else, but
    for the scores of a prompt (`prompt_logprobs`), all of which it has told before.
    """

    request_id: str
    tokens: list[ChoiceToken]


class PrefillLocally(msgspec.Struct, frozen=True, tag=True):
    """No prefill worker is left for this REMOTE request; first tokens that were seeded stay.

    Where `prompt_logprobs` was asked for, the engine computes what is left from there on: what is
    verified of the rows behind has no logits."""

    request_id: str
    num_scored: int = 0
    """Tokens of the prompt, behind its first, whose scores came from elsewhere."""


class ReleaseExport(msgspec.Struct, frozen=True, tag=True):
    """The reader of an EXPORT request has gone, for whatever reason: unpin and end.

    Ends without an error once the prompt is computed, as cancelled before that.
    """

    request_id: str


WARM_PART_BLOCKS = 1024
"""Of the list of warm blocks, at once: on a slow core 10 to 20 ms to decode where it is read. All
50k of a large cache took a second."""


class Inspect(msgspec.Struct, frozen=True, tag=True):
    """Asks for an Inspection in the next frame, with what is wanted of it."""

    token: int
    check_invariants: bool = False
    snapshot_cache: bool = False
    warm_from: int | None = None
    """The index in the list of warm blocks from which WARM_PART_BLOCKS are wanted; 0 makes the list
    anew."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Ends the engine process after the current step."""


class Connect(msgspec.Struct, frozen=True, tag=True):
    """For the intake: a prefill worker's pool, named by its incarnation."""

    incarnation: str
    peer: KvPeer


class Disconnect(msgspec.Struct, frozen=True, tag=True):
    """For the intake: that incarnation is gone; reads from it fail."""

    incarnation: str


class Fetch(msgspec.Struct, frozen=True, tag=True):
    """For the intake: read these blocks of a REMOTE request, verify them, then Deliver.

    `incarnation` names the peer that has them, as given to Connect.
    """

    request_id: str
    incarnation: str
    span: BlockSpan
    into: BlockRun | None = None
    """Our blocks; None: those of the span's indices, as the peer's have the size of ours."""


class Abandon(msgspec.Struct, frozen=True, tag=True):
    """For the intake: the request has given that source up. Its reads from there are answered
    within about a second, if need be by force."""

    request_id: str
    incarnation: str


Command = (
    Submit
    | Cancel
    | Finish
    | Deliver
    | Seed
    | PrefillLocally
    | ReleaseExport
    | Inspect
    | Connect
    | Disconnect
    | Fetch
    | Abandon
    | LoadAdapter
    | UnloadAdapter
    | Stop
)
