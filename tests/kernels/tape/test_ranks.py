"""One layer shared out over two ranks: both players, each cut at the same collectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from kernels.cpu.team import TEAM
from kernels.gated_mul import GateActivation
from kernels.linear import Linear
from kernels.quantize import quantize_groups
from kernels.tape.collective import Collective
from kernels.tape.kernel_set import KernelSet
from kernels.tape.play import KernelPlayer, player_of
from kernels.tape.recording import Player, Recording
from kernels.tape.rows import QkvHeads, VocabularyPart
from kernels.tape.tape import Tape
from kernels.weight_parts import with_height
from kernels.weights import Weight
from tests.kernels.cpu.test_step_program import STEPS, step
from tests.kernels.kernel_sets import DTYPES, cpu_set, random, tolerance
from tests.kernels.ranks import ThreadRank, run_ranks

pytestmark = pytest.mark.usefixtures("every_level")
RANKS = 2
BLOCK_SIZE, NUM_BLOCKS, KV_HEADS, HEADS, HEAD_DIM = 4, 64, 2, 6, 32
HIDDEN, INNER, EPS = 96, 80, 1e-5
EMBEDDED = 61  # ids of `step` are below; an odd number, so that the last rank's part is filled up
HELD = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Of a layer between an embedding and a head; of one rank or of all."""

    embedding: torch.Tensor
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    o: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    head: torch.Tensor

    def of_rank(self, rank: int) -> Weights:
        """Heads, inner columns and words of the vocabulary are shared out."""
        return Weights(
            embedding=with_height(self.embedding, RANKS * HELD)[rank * HELD : (rank + 1) * HELD],
            q=self.q.chunk(RANKS)[rank],
            k=self.k.chunk(RANKS)[rank],
            v=self.v.chunk(RANKS)[rank],
            o=self.o.chunk(RANKS, dim=1)[rank],
            gate=self.gate.chunk(RANKS)[rank],
            up=self.up.chunk(RANKS)[rank],
            down=self.down.chunk(RANKS, dim=1)[rank],
            head=with_height(self.head, RANKS * HELD)[rank * HELD : (rank + 1) * HELD],
        )


def weights(dtype: torch.dtype) -> Weights:
    def matrix(out: int, inputs: int, seed: int) -> torch.Tensor:
        return random(out, inputs, dtype=dtype, seed=seed) * 0.1

    return Weights(
        embedding=matrix(EMBEDDED, HIDDEN, 1),
        q=matrix(HEADS * HEAD_DIM, HIDDEN, 2),
        k=matrix(KV_HEADS * HEAD_DIM, HIDDEN, 3),
        v=matrix(KV_HEADS * HEAD_DIM, HIDDEN, 4),
        o=matrix(HIDDEN, HEADS * HEAD_DIM, 5),
        gate=matrix(INNER, HIDDEN, 6),
        up=matrix(INNER, HIDDEN, 7),
        down=matrix(HIDDEN, INNER, 8),
        head=matrix(EMBEDDED, HIDDEN, 9),
    )


def record(
    own: Weights,
    kernels: KernelSet,
    collective: Collective | None,
    rank: int = 0,
    *,
    root: int | None = None,
) -> Recording:
    """`root`: the rank that wants logits; None: all do."""
    tape, norm = Tape(own.q.dtype, collective), random(HIDDEN, dtype=torch.float32, seed=10)
    heads = QkvHeads(
        num_heads=len(own.q) // HEAD_DIM, num_kv_heads=len(own.k) // HEAD_DIM, head_dim=HEAD_DIM
    )
    cos_sin = random(256, 2, HEAD_DIM // 2, dtype=torch.float32, seed=11)
    pack = kernels.pack_linear
    if collective is None:
        residual = tape.embed(pack(own.embedding))
    else:
        part = VocabularyPart(first_token=rank * HELD, vocab_size=EMBEDDED)
        residual = tape.embed_part(pack(own.embedding), part)
    x = tape.rms_norm(residual, norm, EPS)
    qkv = tape.linear(pack(torch.cat((own.q, own.k, own.v))), x, "qkv")
    attended = tape.paged_attention(tape.rope_write_kv(qkv, heads, cos_sin, 0), heads, 0, 0.2)
    x = tape.add_rms_norm(
        tape.all_reduce(tape.linear(pack(own.o), attended, "branch")), residual, norm, EPS
    )
    x, residual = tape.keep_wanted(x, residual)
    gate_up = tape.linear(pack(torch.cat((own.gate, own.up))), x, "gate_up")
    branch = tape.linear(pack(own.down), tape.gated_mul(gate_up, GateActivation.SILU), "branch")
    x = tape.add_rms_norm(tape.all_reduce(branch), residual, norm, EPS)
    logits = tape.logits(pack(own.head), x)
    return tape.finish(tape.all_gather(logits, "all logits", EMBEDDED, root=root))


def pool(num_kv_heads: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(NUM_BLOCKS, 1, 2, num_kv_heads, BLOCK_SIZE, HEAD_DIM, dtype=dtype)


def kernels_for(*, grouped: bool) -> KernelSet:
    """`grouped`: they hold 8-bit groups of 32 inputs, of all matrices that have whole ones."""
    kernels = cpu_set("native")

    def pack(weight: Weight, bias: torch.Tensor | None = None) -> Linear:
        if isinstance(weight, torch.Tensor) and weight.shape[1] % 32 == 0:
            weight = quantize_groups(weight, bits=8, dtype=weight.dtype)
        return kernels.pack_linear(weight, bias)

    return replace(kernels, pack_linear=pack) if grouped else kernels


def logits_of_ranks(
    play: Callable[[Recording, KernelSet], Player],
    batches: list[Any],
    dtype: torch.dtype,
    *,
    grouped: bool = False,
) -> list[list[torch.Tensor]]:
    """Of each rank, for each batch."""
    kernels, whole = kernels_for(grouped=grouped), weights(dtype)

    def work(rank: int, collective: ThreadRank) -> list[torch.Tensor]:
        player = play(record(whole.of_rank(rank), kernels, collective, rank), kernels)
        kv = pool(KV_HEADS // RANKS, dtype)
        return [player(batch, kv) for batch in batches]

    return run_ranks(RANKS, work)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", STEPS)
def test_two_ranks_give_each_other_the_same_bits_and_the_logits_of_one(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TEAM, "num_threads", 1)
    batches = [step(STEPS[name]), step(STEPS["a mixture"])]
    natively = logits_of_ranks(player_of, batches, dtype)
    by_kernels = logits_of_ranks(KernelPlayer, batches, dtype)
    kernels = cpu_set("native")
    alone = player_of(record(weights(dtype), kernels, None), kernels)
    kv = pool(KV_HEADS, dtype)
    for at, batch in enumerate(batches):
        expected = alone(batch, kv)
        assert torch.equal(natively[0][at], natively[1][at])
        assert torch.equal(natively[0][at], by_kernels[0][at])
        torch.testing.assert_close(natively[0][at], expected, **tolerance(dtype))


def test_a_rank_makes_one_native_call_more_per_collective() -> None:
    kernels, whole = cpu_set("native"), weights(torch.float32)

    def work(rank: int, collective: ThreadRank) -> int:
        recording = record(whole.of_rank(rank), kernels, collective, rank)
        return player_of(recording, kernels).num_native_calls

    assert run_ranks(RANKS, work) == [4, 4]
    assert player_of(record(whole, kernels, None), kernels).num_native_calls == 1


@pytest.mark.parametrize("play", [player_of, KernelPlayer])
def test_an_unknown_token_is_an_error_before_any_collective(
    play: Callable[[Recording, KernelSet], Player],
) -> None:
    batch = step([(3, 3)])
    batch.token_ids[1] = EMBEDDED  # of a row that only fills up the last part
    with pytest.raises(IndexError, match="1 token ids are not in the vocabulary"):
        logits_of_ranks(play, [batch], torch.float32)
