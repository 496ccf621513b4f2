"""One sequence: tokens known so far, how many of them have KV in the pool, and where.

    token_ids   | prompt ............ | generated ... |
    KV in pool  | num_computed ............... | num_remaining |

When nothing remains after a step, the next token is sampled and appended: one remains again. A
preempted sequence gives its blocks back and starts over with all its tokens as if they were prompt.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

from cluster.block_hash import chain_names, pack_tokens
from cluster.sampling import SamplingParams
from engine.memory.lease import BlockLease
from engine.sampling.grammars.constraint import Constraint
from engine.sampling.logits import SamplingRow
from engine.sampling.seen_tokens import SeenTokens
from engine.step.drafting.draft_kv import DraftKv
from engine.step.drafting.head_kv import HeadKv
from engine.step.drafting.paced_guesser import PacedGuesser
from engine.step.requests.adapter_use import AdapterUse
from engine.step.requests.lifecycle import Life
from kernels.token_mask import TokenMask


class Sequence:
    """One choice of a request. `arrival` orders requests; it does not change."""

    __slots__ = (
        "_names",
        "adapter",
        "adapter_digest",
        "arrival",
        "cache_root",
        "choice",
        "constraint",
        "draft_kv",
        "guesser",
        "head_kv",
        "is_pooled",
        "lease",
        "life",
        "num_computed",
        "num_prompt",
        "num_scored",
        "request_id",
        "seen",
        "token_ids",
    )

    def __init__(
        self,
        request_id: str,
        prompt: list[int],
        *,
        cache_root: bytes,
        arrival: int,
        life: Life,
        adapter_digest: str = "",
    ) -> None:
        self.request_id = request_id
        self.choice = 0
        self.arrival = arrival
        self.cache_root = cache_root
        self.token_ids = list(prompt)
        self.num_prompt = len(prompt)
        self.num_computed = 0
        self.num_scored: int | None = None
        """Rows of the prompt whose logits have scored the next token; None: nobody asked."""
        self.is_pooled = False
        """Its hidden states are wanted, and no token. `num_scored` are then the rows that count
        already, where every row does."""
        self.lease: BlockLease | None = None
        self.life = life
        self.constraint: Constraint | None = None
        """Its answer's grammar, from the first mask on: a function of the tokens, so forks and
        preempted ones need nothing of it."""
        self.adapter: AdapterUse | None = None
        """What computes it beside the model; None: nothing does."""
        self.adapter_digest = adapter_digest
        """Of what computed its KV, also where nothing is computed here."""
        self.guesser: PacedGuesser | None = None
        """Guesses its next tokens by its text; None: nobody does, or not yet."""
        self.draft_kv: DraftKv | None = None
        """What a model that guesses them has read; None: there is none, or nothing yet."""
        self.head_kv: HeadKv | None = None
        """The same of a head over the model's states."""
        self.seen = SeenTokens(len(prompt))
        """How often its text has each token, for penalties."""
        self._names: list[bytes] = []

    @property
    def key(self) -> tuple[int, int]:
        """Unique, and older sequences sort first."""
        return self.arrival, self.choice

    @property
    def num_generated(self) -> int:
        """Tokens after the prompt."""
        return len(self.token_ids) - self.num_prompt

    @property
    def scores_prompt(self) -> bool:
        """True while tokens of the prompt are to be scored: the last one's row scores nothing."""
        return self.num_scored is not None and self.num_scored < self.num_prompt - 1

    @property
    def num_remaining(self) -> int:
        """Tokens without KV."""
        return len(self.token_ids) - self.num_computed

    @property
    def adapter_slot(self) -> int:
        """What its rows are computed with; 0: the model alone."""
        if self.adapter is None:
            return 0
        assert self.adapter.slot is not None, f"{self.request_id} is computed without its adapter"
        return self.adapter.slot

    @property
    def blocks(self) -> BlockLease:
        """The lease of a sequence that has blocks."""
        assert self.lease is not None, f"{self.request_id} has no blocks"
        return self.lease

    def row(
        self,
        params: SamplingParams,
        logit_row: int,
        *,
        choice: int | None = None,
        ahead: Ordered[int] = (),
        num_unread: int = 0,
        allowed: TokenMask | None = None,
    ) -> SamplingRow:
        """Its next token, to be sampled: behind `num_unread` tokens that are chosen, and those of
        `ahead`, as if they were known. `choice`: None: its own; `allowed`: see SamplingRow."""
        return SamplingRow(
            logit_row=logit_row,
            params=params,
            choice=self.choice if choice is None else choice,
            token_ids=self.token_ids,
            num_prompt=self.num_prompt,
            num_ahead=num_unread + len(ahead),
            ahead=ahead,
            seen=self.seen,
            allowed=allowed,
        )

    def names(self, block_size: int) -> list[bytes]:
        """The names of all full blocks of `token_ids`; each is hashed once."""
        done = len(self._names)
        if (done + 1) * block_size <= len(self.token_ids):
            fresh = pack_tokens(self.token_ids[done * block_size :])
            parent = self._names[-1] if self._names else self.cache_root
            self._names += chain_names(fresh, parent=parent, block_size_tokens=block_size)
        return self._names

    def release(self) -> None:
        """Gives the blocks back, if there are any; what was computed is gone."""
        if self.lease is not None:
            self.lease.release()
        self.lease = None
        self.num_computed = 0

    def begin_again(self) -> None:
        """As the prompt alone, without blocks: the first choice."""
        self.release()
        del self.token_ids[self.num_prompt :]
        self._names.clear()
        self.seen = SeenTokens(self.num_prompt)
        self.choice = 0

    def fork(self, choice: int) -> Sequence:
        """Another choice with the same tokens, on the same blocks."""
        other = Sequence(
            self.request_id,
            self.token_ids[: self.num_prompt],
            cache_root=self.cache_root,
            arrival=self.arrival,
            life=self.life.fork(),
            adapter_digest=self.adapter_digest,
        )
        other.choice = choice
        other.num_computed = self.num_computed
        other.adapter = self.adapter
        other.lease = self.blocks.fork(self.request_id)
        other._names = list(self._names)
        return other
