"""What a prefill engine announces: blocks that are in memory, with generations and digests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from cluster.block_span import BlockSpan
from engine.contract.messages import Frame, Prefilled
from engine.process.extension import EngineParts
from engine.step.step_health import MAX_FAILED_STEPS, EngineBroken
from kernels.dispatch.block_digest import block_digest
from kvtransfer.local_pool import LocalPool
from kvtransfer.loopback import LoopbackNetwork, LoopbackTransport
from kvtransfer.verification import Digest, digest_bytes, wait_until_computed
from worker.kv.kv_exporter import KvExporter


def exporter(
    pool: LocalPool, digest: Digest, wait: Callable[[torch.Tensor], None] = wait_until_computed
) -> KvExporter:
    parts = EngineParts(
        spec=None, kv=pool.blocks, generations=pool.generations, shares=(), num_homes=1
    )
    transport = LoopbackTransport(pool, "p", network=LoopbackNetwork())
    return KvExporter(parts, transport, digest, wait=wait)


def random_pool() -> LocalPool:
    return LocalPool(torch.randn(8, 2, 2, 1, 4, 8), torch.arange(8) + 1)


def test_announced_blocks_get_generations_and_digests() -> None:
    pool = random_pool()
    frame = Frame(prefilled=[Prefilled("a", BlockSpan(3, [5, 2]))])
    exporter(pool, block_digest).enrich(frame)
    digests = digest_bytes(block_digest, pool.blocks, [5, 2])
    assert frame.prefilled == [Prefilled("a", BlockSpan(3, [5, 2], [6, 3], digests))]


def test_nothing_is_announced_before_the_device_has_computed_it_even_without_digests() -> None:
    """A digest that is brought to the host waits for the device; one that fails does not."""
    waited: list[torch.Tensor] = []
    is_loaded = False

    def fails(pool: torch.Tensor, block_ids: Sequence[int]) -> torch.Tensor:
        if is_loaded:
            raise RuntimeError("no kernel")
        return block_digest(pool, block_ids)

    pool = random_pool()
    made = exporter(pool, fails, waited.append)
    is_loaded = True
    frame = Frame(prefilled=[Prefilled("a", BlockSpan(0, [1]))])
    made.enrich(frame)
    assert frame.prefilled[0].span.digests == b""
    assert len(waited) == 1 and waited[0] is pool.blocks
    made.enrich(Frame())
    assert len(waited) == 1


class BreakableDigest:
    """The real one, until it fails with what a test says."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __call__(self, pool: torch.Tensor, block_ids: Sequence[int]) -> torch.Tensor:
        if self.error is not None:
            raise self.error
        return block_digest(pool, block_ids)


def announcement(number: int) -> Frame:
    return Frame(prefilled=[Prefilled(f"r{number}", BlockSpan(0, [1]))])


def test_an_engine_whose_every_digest_fails_gives_up_after_a_few() -> None:
    digest = BreakableDigest()
    made = exporter(random_pool(), digest)
    digest.error = ValueError("no such block")
    for number in range(MAX_FAILED_STEPS - 1):
        made.enrich(announcement(number))
    with pytest.raises(EngineBroken, match="could not be checksummed; the last with ValueError"):
        made.enrich(announcement(MAX_FAILED_STEPS))


def test_one_prompt_whose_chunks_cannot_be_checksummed_does_not_end_the_engine() -> None:
    digest = BreakableDigest()
    made = exporter(random_pool(), digest)
    digest.error = ValueError("odd")
    for _ in range(3 * MAX_FAILED_STEPS):
        made.enrich(announcement(0))


def test_a_digest_that_is_made_between_failures_makes_the_exporter_good_again() -> None:
    digest = BreakableDigest()
    made = exporter(random_pool(), digest)
    for number in range(3 * MAX_FAILED_STEPS):
        digest.error = ValueError("odd") if number % 2 else None
        made.enrich(announcement(number))


def test_a_digest_that_meets_a_device_error_ends_the_engine_at_once() -> None:
    digest = BreakableDigest()
    made = exporter(random_pool(), digest)
    digest.error = RuntimeError("CUDA error: an illegal memory access was encountered")
    with pytest.raises(EngineBroken, match="the device is lost"):
        made.enrich(announcement(0))
