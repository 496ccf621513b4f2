"""What a request asks to change in its logits before a token is chosen: penalties, bias, bans.

    repetition    l > 0: l / r, else l * r     every token seen, prompt included
    presence      l - p                        every token generated so far
    frequency     l - f * count                every token generated so far
    bias          l + b
    ban           -inf                         ends of the text before `min_tokens`

Everything follows from the row's own tokens: what is kept between steps (seen_tokens.py) are their
counts, which need not be taken anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from cluster.sampling import SamplingParams
from engine.sampling.seen_tokens import SeenTokens
from kernels.token_mask import TokenMask


class SamplingRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One token to be sampled. A Struct, as `RunningView` is."""

    logit_row: int
    """Which row of the step's logits; the choices of one prompt share a row."""
    params: SamplingParams
    choice: int
    token_ids: Sequence[int]
    """Prompt and generated tokens, as far as they were read."""
    num_prompt: int
    num_ahead: int = 0
    """Tokens of this choice behind `token_ids` that are chosen, but not read yet, or guessed."""
    ahead: Sequence[int] = ()
    """Those that are guessed, all of them: the row is drawn as if they were known."""
    seen: SeenTokens | None = None
    """Counts of `token_ids` that their sequence keeps; None: they are counted for this row."""
    allowed: TokenMask | None = None
    """Tokens that may come; None: any. The same for all choices that share a row."""

    @property
    def position(self) -> int:
        """Of the new token, in the sequence."""
        return len(self.token_ids) + self.num_ahead

    @property
    def num_generated(self) -> int:
        """Tokens that this choice has already, guessed ones included."""
        return len(self.token_ids) - self.num_prompt + len(self.ahead)

    @property
    def is_adjusted(self) -> bool:
        """True when penalties or bias change the distribution."""
        return bool(
            self.params.logit_bias
            or self.params.repetition_penalty != 1.0
            or self.params.presence_penalty
            or self.params.frequency_penalty
        )

    @property
    def bans_ends(self) -> bool:
        """True while the text may not end yet."""
        return self.num_generated < self.params.min_tokens

    @property
    def is_plain(self) -> bool:
        """True when temperature and truncation of the logits, masked or not, are all that is asked
        for."""
        params = self.params
        asks_nothing = params.logprobs is None and params.beams is None
        return asks_nothing and not self.bans_ends and not self.is_adjusted

    @property
    def is_simple(self) -> bool:
        """True when that is so of the raw logits: the host has no part in it."""
        return self.is_plain and self.params.grammar is None


def end_token_ids(params: SamplingParams, eos_token_ids: Sequence[int]) -> frozenset[int]:
    """The tokens that end a choice."""
    eos = () if params.ignore_eos else eos_token_ids
    return frozenset(params.stop_token_ids) | frozenset(eos)


def adjust(logits: torch.Tensor, row: SamplingRow) -> None:
    """Penalties and bias of one row, in place. `logits` is float32 [vocab_size]."""
    params = row.params
    if params.repetition_penalty != 1.0:
        _penalize_repetition(logits, row)
    if params.presence_penalty or params.frequency_penalty:
        _penalize_generated(logits, row)
    if params.logit_bias:
        token_ids = _on(logits, np.fromiter(params.logit_bias.keys(), np.int64))
        logits[token_ids] += _on(logits, np.fromiter(params.logit_bias.values(), np.float32))


def ban_ends(logits: torch.Tensor, row: SamplingRow, eos_token_ids: Sequence[int]) -> None:
    """Makes the ends of the text impossible, in place. `logits` is float32 [vocab_size]."""
    ends = end_token_ids(row.params, eos_token_ids)
    logits[_on(logits, np.fromiter(ends, np.int64))] = -torch.inf


def _penalize_repetition(logits: torch.Tensor, row: SamplingRow) -> None:
    ids, _ = _seen(row).text.of(row.token_ids, row.ahead)
    token_ids, penalty = _on(logits, ids), row.params.repetition_penalty
    values = logits[token_ids]
    logits[token_ids] = torch.where(values > 0, values / penalty, values * penalty)


def _penalize_generated(logits: torch.Tensor, row: SamplingRow) -> None:
    ids, counts = _seen(row).answer.of(row.token_ids, row.ahead)
    penalties = row.params.presence_penalty + row.params.frequency_penalty * counts
    logits[_on(logits, ids)] -= _on(logits, penalties.astype(np.float32))


def _seen(row: SamplingRow) -> SeenTokens:
    return SeenTokens(row.num_prompt) if row.seen is None else row.seen


def _on(logits: torch.Tensor, values: npt.NDArray[np.generic]) -> torch.Tensor:
    return torch.from_numpy(values).to(logits.device)
