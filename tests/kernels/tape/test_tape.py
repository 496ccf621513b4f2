"""What a tape records, and the rows it refuses."""

from __future__ import annotations

import pytest
import torch

from kernels.dispatch.kernel_sets import REFERENCE
from kernels.gated_mul import GateActivation
from kernels.linear import Linear
from kernels.reference.linear import TorchLinear
from kernels.tape.operations import AllGather, AllReduce, Operation
from kernels.tape.play import player_of, spent_places
from kernels.tape.rows import QkvHeads, Rows
from kernels.tape.tape import Tape
from tests.engine.model.tiny_llama import ragged_batch
from tests.kernels.kernel_sets import random
from tests.kernels.ranks import SameEverywhere

HIDDEN, INNER = 8, 6


def matrix(out: int, inputs: int) -> Linear:
    return TorchLinear(random(out, inputs, dtype=torch.float32))


def feed_forward(tape: Tape) -> Rows:
    """A residual stream, one feed-forward, and half a head."""
    residual = tape.embed(matrix(20, HIDDEN))
    x = tape.rms_norm(residual, torch.ones(HIDDEN), 1e-5)
    gate_up = tape.linear(matrix(2 * INNER, HIDDEN), x, "gate_up")
    gated = tape.gated_mul(gate_up, GateActivation.SILU)
    branch = tape.all_reduce(tape.linear(matrix(HIDDEN, INNER), gated, "branch"))
    x = tape.add_rms_norm(branch, residual, torch.ones(HIDDEN), 1e-5)
    return tape.all_gather(tape.logits(matrix(10, HIDDEN), x), "all logits")


def kinds(tape: Tape) -> list[type[Operation]]:
    return [type(operation) for operation in tape.finish(feed_forward(tape)).operations]


def test_a_single_rank_records_no_collective() -> None:
    alone, of_one = Tape(torch.float32), Tape(torch.float32, SameEverywhere(1))
    assert kinds(alone) == kinds(of_one)
    assert not {AllReduce, AllGather} & set(kinds(alone))


def test_ranks_record_the_same_and_their_collectives_among_it() -> None:
    recorded = kinds(Tape(torch.float32, SameEverywhere(2)))
    without = [kind for kind in recorded if kind not in (AllReduce, AllGather)]
    assert without == kinds(Tape(torch.float32))
    assert recorded.count(AllReduce) == 1 and recorded[-1] is AllGather


def test_gathered_logits_are_as_wide_as_all_ranks_together() -> None:
    assert feed_forward(Tape(torch.float32, SameEverywhere(3))).width == 30


def test_rows_that_are_left_outlive_the_operations_that_change_them() -> None:
    """Natively they do as well: tests/engine/model/test_eagle3_head.py."""
    tape, ones = Tape(torch.float32), torch.ones(HIDDEN)
    embedding, product = matrix(20, HIDDEN), matrix(HIDDEN, HIDDEN)
    residual = tape.embed(embedding)
    tape.leave(residual)
    x = tape.rms_norm(residual, ones, 1e-5)
    x = tape.add_rms_norm(tape.linear(product, x, "branch"), residual, ones, 1e-5)
    tape.leave(residual)
    player = player_of(tape.finish(tape.logits(matrix(10, HIDDEN), x)), REFERENCE)
    batch = ragged_batch([([3, 5, 3], 0, [0])])
    player(batch, torch.zeros(1, 1, 2, 1, 4, 2))
    before, after = player.left()
    assert torch.equal(before, embedding.rows(batch.token_ids))
    normed = REFERENCE.rms_norm(before.clone(), ones, 1e-5, torch.float32)
    assert torch.equal(after, before + product(normed))


def test_rows_of_a_wrong_width_are_refused_while_recording() -> None:
    tape = Tape(torch.float32)
    x = tape.rows("x", HIDDEN)
    with pytest.raises(ValueError, match=f"x has width {HIDDEN}; needed: {INNER}"):
        tape.linear(matrix(HIDDEN, INNER), x, "branch")
    with pytest.raises(ValueError, match="into the place of its x"):
        tape.linear(matrix(HIDDEN, HIDDEN), x, "x")
    with pytest.raises(ValueError, match="odd width 7"):
        tape.gated_mul(tape.rows("gate_up", 7), GateActivation.SILU)
    with pytest.raises(ValueError, match="a branch of width 6"):
        tape.add_rms_norm(tape.rows("branch", INNER), x, torch.ones(HIDDEN), 1e-5)
    with pytest.raises(ValueError, match=r"weight has shape \(6,\)"):
        tape.rms_norm(x, torch.ones(INNER), 1e-5)
    heads = QkvHeads(num_heads=2, num_kv_heads=1, head_dim=4)
    with pytest.raises(ValueError, match="qkv has width 8; needed: 16"):
        tape.rope_write_kv(x, heads, torch.ones(5, 2, 2), 0)


def test_heads_that_cannot_share_kv_heads_are_refused() -> None:
    with pytest.raises(ValueError, match="3 query heads share 2 KV heads"):
        QkvHeads(num_heads=3, num_kv_heads=2, head_dim=4)


def test_an_activation_is_given_back_after_the_last_operation_that_reads_it() -> None:
    tape = Tape(torch.float32)
    logits = feed_forward(tape)
    operations = tape.finish(logits).operations
    live: set[int] = set()
    for operation, spent in zip(operations, spent_places(operations, logits), strict=True):
        assert {rows.place for rows in operation.used()} <= live
        live |= {rows.place for rows in operation.made()}
        assert set(spent) <= live
        live -= set(spent)
    assert live == {logits.place}
