"""Integers of 4 or 8 bits packed into 32-bit words, the lowest bits first."""

from __future__ import annotations

import torch


def unpacked(words: torch.Tensor, bits: int) -> torch.Tensor:
    """int32 [rows, words] -> uint8 [rows, words * 32 / bits], a word's lowest bits first."""
    octets = words.contiguous().view(torch.uint8)  # little-endian: a word's lowest byte first
    if bits == 8:
        return octets
    return torch.stack((octets & 15, octets >> 4), -1).flatten(-2)
