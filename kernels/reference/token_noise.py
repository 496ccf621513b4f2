"""Noise of each token in a draw: the same for any logits, batch and device.

    word       32 bits of (key, token): a finalizer of three products, a half of the key entering
               before the first and after the second
    noise      -log(-log(1 - u)), u in (0, 1) of 52 bits: the token's word, and that of its inverse
               behind it

The token with the highest sum of log probability and noise is one of the distribution (Gumbel 1954;
Maddison et al. 2014); two distributions that are alike then have mostly the same token. A word has
the steps of "triple32", C. Wellons, "hash-prospector", 2018. Where u is small, which is where an
unlikely token wins, it has steps of 2**-52. Keys are random themselves: that of zeros gives token 0
the word 0.
"""

from __future__ import annotations

import torch

FACTORS = (0xED5AD4BB, 0xAC4C1B51, 0x31848BAB)
"""Odd: a word is a permutation of tokens."""
_WORD = 0xFFFFFFFF


def gumbel_noise(token_ids: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Both int64, of shapes that broadcast -> float64, about -3.6 to 36.7."""
    high = _words(token_ids, keys)
    low = _words(high ^ _WORD, keys)
    steps = (high << 20 | low >> 12).double()
    return -(1.0 - (steps + 0.5) * 2.0**-52).log().neg_().log_()


def _words(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    x = x ^ (keys & _WORD)
    x = ((x ^ x >> 17) * FACTORS[0]) & _WORD
    x = ((x ^ x >> 11) * FACTORS[1]) & _WORD
    x = x ^ (keys >> 32 & _WORD)
    x = ((x ^ x >> 15) * FACTORS[2]) & _WORD
    return x ^ x >> 14
