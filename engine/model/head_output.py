"""What a head gives: how likely each token is next, and what guesses of later ones begin with."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """Of the rows whose logits were wanted."""

    logits: torch.Tensor  # float32 [num_logits, vocab_size of the target]
    hidden: torch.Tensor  # float32 [num_logits, hidden]
