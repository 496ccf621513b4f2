"""A model's guesses: drawn as the target's tokens are, by the same noise.

Each token has the same noise in the draft's distribution as it will have in the target's: where
these are alike the tokens are mostly equal at any temperature, and greedy requests get the draft's
likeliest token. Of a grammar the masks that are known already hold for guesses, too:
those of forced tokens and of the one behind them; of what comes later the verification drops what
it forbids.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field

import torch
from msgspec import structs

from cluster.sampling import SamplingParams
from engine.contract.draft_numbers import DrafterKind
from engine.sampling.logits import SamplingRow
from engine.sampling.sampler import Sampler
from engine.step.batch.step_work import Wanted
from engine.step.drafting.draft import Draft
from engine.step.grammar_drafts import outlook_for_drafts
from engine.step.requests.sequence import Sequence
from kernels.token_mask import TokenMask


@dataclass(slots=True)
class Making:
    """A draft in the making."""

    sequence: Sequence
    num_tokens: int
    params: SamplingParams
    guesses: list[int] = field(default_factory=list)
    is_over: bool = False
    """It has as many as were wanted, or no token could be drawn."""
    masks: Ordered[TokenMask] = ()
    """Of its first guesses, as far as they are known: see GrammarOutlook."""
    num_forced: int = 0
    """Of the first guesses: their masks have one token."""

    @classmethod
    def of(cls, wanted: Wanted) -> Making:
        """Nothing is guessed yet; nobody reads logprobs of guesses."""
        params = wanted.request.params
        if params.logprobs is not None:
            params = structs.replace(params, logprobs=None)
        outlook, known = outlook_for_drafts(wanted.sequence), wanted.sequence.num_generated
        made = cls(wanted.sequence, wanted.num_tokens, params)
        if outlook is not None:
            made.masks, made.num_forced = outlook.masks_at(known), len(outlook.forced_at(known))
        return made

    def take(self, token_id: int | None) -> None:
        """The next guess; None: no token could be drawn. No effect where it is over."""
        if self.is_over:
            return
        if token_id is not None:
            self.guesses.append(token_id)
        self.is_over = token_id is None or len(self.guesses) == self.num_tokens

    def draft(self, drafter: DrafterKind) -> Draft:
        """What was guessed, which may be nothing; chances were told before."""
        num_forced = min(self.num_forced, len(self.guesses))
        return Draft(self.guesses, [], drafter, num_forced=num_forced)

    def row(self, logit_row: int, *, num_unread: int = 0) -> SamplingRow:
        """Of the next guess, as if the ones before it were known; or of the one behind `num_unread`
        that are drawn, but not read, where nothing depends on what they are."""
        if num_unread:
            return self.sequence.row(self.params, logit_row, num_unread=num_unread)
        place = len(self.guesses)
        allowed = self.masks[place] if place < len(self.masks) else None
        ahead = tuple(self.guesses)
        return self.sequence.row(self.params, logit_row, ahead=ahead, allowed=allowed)


class GuessSampler:
    """Draws guesses from a draft model's logits."""

    def __init__(self, eos_token_ids: Ordered[int], vocab_size: int) -> None:
        """`vocab_size`: the target's."""
        self._sampler = Sampler(eos_token_ids)
        self._vocab_size = vocab_size

    def guess(self, logits: torch.Tensor, makings: Ordered[Making]) -> None:
        """One more token for each, where there is one. `logits` is float32 [num_makings, vocabulary
        of the draft], which may be smaller than the target's, or larger."""
        rows = [making.row(i) for i, making in enumerate(makings)]
        drawn = self._sampler.sample(self._fitted(logits), rows)
        for making, token in zip(makings, drawn, strict=True):
            making.take(None if token is None else token.token_id)

    def _fitted(self, logits: torch.Tensor) -> torch.Tensor:
        missing = self._vocab_size - logits.shape[-1]
        if missing == 0:
            return logits
        return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
