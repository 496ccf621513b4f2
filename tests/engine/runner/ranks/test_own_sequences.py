"""Ranks with sequences of their own, on threads: tokens of one decoder, whoever has what."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cluster.block_homes import BlockHomes
from cluster.errors import InternalError
from cluster.models.card import ModelCard
from cluster.sharding import RowSharing
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.decoder import Decoder
from engine.runner.model_runner import DecoderRunner
from engine.runner.ranks.own_sequences import OwnSequences
from tests.engine.model.mixture_cards import PROMPTS, card_of
from tests.engine.model.parity import CLOSE, generate
from tests.engine.model.rank_decoders import rank_decoder
from tests.engine.model.tiny_llama import BLOCK_SIZE, ragged_batch
from tests.kernels.ranks import ThreadRank, run_ranks

NUM_TOKENS = 12
"""Of each answer."""
BLOCKS_EACH = 40


def runner_of_rank(
    card: ModelCard, index: int, collective: ThreadRank, homes: BlockHomes
) -> OwnSequences:
    decoder = rank_decoder(card, index, collective, row_sharing=RowSharing.OWN)
    layout = KvLayout.of_part(decoder.split, BLOCK_SIZE, decoder.dtype)
    return OwnSequences(
        own=DecoderRunner(decoder, KvPool(layout, homes.blocks_each + 1, "cpu")),
        homes=homes,
        block_size=BLOCK_SIZE,
        experts=decoder.experts,
        collective=collective,
        logits_at=0,
    )


def told(collective: ThreadRank, tokens: list[int], count: int) -> list[int]:
    """What rank 0 has sampled, at all ranks."""
    own = torch.tensor([tokens if collective.rank == 0 else [0] * count])
    return collective.all_gather(own)[0, :count].tolist()


def answers(
    runner: OwnSequences, collective: ThreadRank, prompts: list[list[int]], ranks: list[int]
) -> list[list[int]]:
    """Greedy, the prompts in chunks of 13 tokens; `ranks` has the home of each."""
    per_stream = -(-(max(map(len, prompts)) + NUM_TOKENS) // BLOCK_SIZE)
    free = {rank: iter(runner.homes.ids_of(rank)) for rank in set(ranks)}
    tables = [[next(free[rank]) for _ in range(per_stream)] for rank in ranks]
    tokens, fed = [list(prompt) for prompt in prompts], [0] * len(prompts)
    while any(len(t) < len(p) + NUM_TOKENS for t, p in zip(tokens, prompts, strict=True)):
        chunks = [(tokens[at][fed[at] : fed[at] + 13], at) for at in range(len(prompts))]
        chunks.sort(key=lambda chunk: len(chunk[0]) > 1)
        batch = ragged_batch([(new, fed[at], tables[at]) for new, at in chunks])
        logits = runner.forward(batch)
        ends = [int(end) - 1 for end in batch.query_starts[1:]]
        best = logits[ends].argmax(-1).tolist() if collective.rank == 0 else []
        for (new, at), token in zip(chunks, told(collective, best, len(ends)), strict=True):
            fed[at] += len(new)
            if fed[at] == len(tokens[at]):
                tokens[at].append(token)
    return [t[: len(p) + NUM_TOKENS] for t, p in zip(tokens, prompts, strict=True)]


@pytest.mark.parametrize(
    ("family", "num_ranks", "ranks"),
    [
        ("mixtral", 2, [0, 1, 0]),
        ("mixtral", 4, [3, 3, 3]),
        ("qwen 3 moe with dense layers", 4, [2, 0, 1]),
        ("v3", 2, [1, 0, 1]),
        ("v3", 2, [1, 1, 1]),
        ("v3", 4, [1, 2, 2]),
    ],
)
def test_tokens_are_those_of_one_decoder_wherever_sequences_live(
    family: str, num_ranks: int, ranks: list[int], tmp_path: Path
) -> None:
    card, homes = card_of(family, tmp_path), BlockHomes(num_ranks, BLOCKS_EACH)

    def work(index: int, collective: ThreadRank) -> list[list[int]]:
        runner = runner_of_rank(card, index, collective, homes)
        return answers(runner, collective, PROMPTS, ranks)

    alone = generate(Decoder.load(card, torch.float32, "cpu"), PROMPTS, 13)
    expected = [
        tokens[: len(prompt) + NUM_TOKENS]
        for (tokens, _), prompt in zip(alone, PROMPTS, strict=True)
    ]
    assert run_ranks(num_ranks, work) == [expected] * num_ranks


def test_a_rank_whose_blocks_were_copied_sees_what_was_there(tmp_path: Path) -> None:
    card, homes = card_of("v3", tmp_path), BlockHomes(2, BLOCKS_EACH)
    prompt = PROMPTS[0][: 2 * BLOCK_SIZE]
    at_rank_1 = list(homes.ids_of(1))
    first, moved = at_rank_1[:3], [*at_rank_1[4:6], at_rank_1[2]]

    def work(index: int, collective: ThreadRank) -> list[torch.Tensor]:
        runner = runner_of_rank(card, index, collective, homes)
        runner.forward(ragged_batch([(prompt, 0, first)]))
        seen = [runner.forward(ragged_batch([([7], len(prompt), first)]))]
        runner.copy_blocks([(first[0], moved[0]), (first[1], moved[1])])
        return [*seen, runner.forward(ragged_batch([([7], len(prompt), moved)]))]

    before, after = run_ranks(2, work)[0]
    torch.testing.assert_close(after, before, **CLOSE)
    assert before.shape == (1, card.config.vocab_size)


def test_ranks_that_part_over_whose_a_sequence_is_are_found(tmp_path: Path) -> None:
    card, homes = card_of("v3", tmp_path), BlockHomes(2, BLOCKS_EACH)

    def work(index: int, collective: ThreadRank) -> str:
        own = homes if index == 0 else BlockHomes(2, 3)  # the other takes block 4 for its own
        runner = runner_of_rank(card, index, collective, own)
        try:
            runner.forward(ragged_batch([([7], 0, [4])]))
        except InternalError as error:
            return error.message
        return ""

    said, _ = run_ranks(2, work)
    assert "ranks gave [1, 1] rows of logits, and [1, 0] are theirs" in said


def test_rows_of_padding_count_for_no_expert(tmp_path: Path) -> None:
    card, homes = card_of("v3", tmp_path), BlockHomes(4, BLOCKS_EACH)
    mixture = card.config.mixture
    assert mixture is not None
    prompt = PROMPTS[1]

    def work(index: int, collective: ThreadRank) -> torch.Tensor:
        runner = runner_of_rank(card, index, collective, homes)
        runner.forward(ragged_batch([(prompt, 0, list(homes.ids_of(2))[:8])]))
        return runner.experts.total_picks()

    for picks in run_ranks(4, work):
        of_layers = picks.sum(1)[1:]  # the first one is dense
        assert set(of_layers.tolist()) == {len(prompt) * mixture.num_experts_per_token}
