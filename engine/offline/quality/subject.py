"""A model under test: all its logits, or what it goes on to say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from cluster.models.cache.store import ModelStore
from cluster.models.text.tokenizer import load_tokenizer
from engine.model.ragged_batch import RaggedBatch
from engine.offline.queue import generate
from engine.offline.replica import OfflineSetup, greedy_request, load_offline
from engine.step.engine import Engine

CHUNK_TOKENS = 64
"""A chunk reads what earlier chunks wrote: short ones let a quantized KV cache show."""
AT_ONCE = 8


class Subject:
    """Loads the model; nothing else may use it meanwhile."""

    def __init__(self, setup: OfflineSetup) -> None:
        self.setup = setup
        self.tokenizer = load_tokenizer(ModelStore().resolve(setup.model))
        self._replica = load_offline(setup)
        self._engine = Engine(self._replica, setup.options)

    @property
    def max_context_tokens(self) -> int:
        """Prompt and answer together."""
        return self._replica.max_context_tokens

    def logits(self, token_ids: Sequence[int]) -> Iterator[torch.Tensor]:
        """After every token, in order: float32 [up to CHUNK_TOKENS, vocab_size] at a time."""
        for start in range(0, len(token_ids), CHUNK_TOKENS):
            chunk = token_ids[start : start + CHUNK_TOKENS]
            yield self._replica.runner.forward(self._chunk(chunk, start))

    def continuations(self, prompts: Sequence[list[int]], max_tokens: int) -> list[str]:
        """Greedy text after each prompt."""
        texts = []
        for start in range(0, len(prompts), AT_ONCE):
            group = prompts[start : start + AT_ONCE]
            requests = [greedy_request(f"{start + i}", p, max_tokens) for i, p in enumerate(group)]
            done = generate(self._engine, requests)
            texts += [self.tokenizer.decode(completion.token_ids()) for completion in done]
        return texts

    def _chunk(self, token_ids: Sequence[int], start: int) -> RaggedBatch:
        """One sequence in the pool's first blocks: no request is running."""
        device, block_size = self._replica.kv.device, self.setup.options.block_size_tokens
        count, end = len(token_ids), start + len(token_ids)
        positions = torch.arange(start, end, device=device)
        blocks = torch.arange(-(-end // block_size), dtype=torch.int32, device=device)
        return RaggedBatch(
            token_ids=torch.tensor(token_ids, device=device),
            positions=positions,
            slots=positions,
            query_starts=torch.tensor([0, count], dtype=torch.int32, device=device),
            context_lens=torch.tensor([end], dtype=torch.int32, device=device),
            block_tables=blocks[None],
            logit_rows=torch.arange(count, device=device),
            num_decodes=0,
            max_query_len=count,
            max_context_len=end,
        )
