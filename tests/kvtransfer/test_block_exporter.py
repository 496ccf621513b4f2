"""What the prefill side announces."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from kernels.block_digest import block_digest
from kvtransfer.block_exporter import BlockExporter, ExportJob
from kvtransfer.verification import digest_bytes
from tests.kvtransfer.kv_blocks import small_pool, wait_until


def test_exports_come_in_order_with_generations_and_digests() -> None:
    pool, notified = small_pool(8, seed=3), threading.Event()
    exporter = BlockExporter(pool, block_digest, notify=notified.set)
    jobs = [ExportJob(request_id=f"r{i}", first_index=i, block_ids=(i, 7 - i)) for i in range(3)]
    for job in jobs:
        exporter.submit(job)
    assert exporter.busy
    exporter.close()
    exports = exporter.poll()
    assert [export.job for export in exports] == jobs and notified.is_set()
    assert exports[1].generations == [101, 106]
    assert exports[1].digests == digest_bytes(block_digest, pool.blocks, [1, 6])
    assert len(exports[1].digests) == 2 * 2 * 2 * 3 * 8
    assert not exporter.busy and exporter.poll() == []


def test_generations_are_those_of_the_moment_of_submit() -> None:
    pool, go = small_pool(4, seed=3), threading.Event()

    def slow(blocks: torch.Tensor, block_ids: Sequence[int]) -> torch.Tensor:
        assert go.wait(5.0)
        return block_digest(blocks, block_ids)

    exporter = BlockExporter(pool, slow)
    exporter.submit(ExportJob(request_id="r", first_index=0, block_ids=(2,)))
    pool.generations[2] += 1
    go.set()
    exporter.close()
    assert exporter.poll()[0].generations == [102]


def test_a_digest_that_fails_is_that_exports_error() -> None:
    def broken(blocks: torch.Tensor, block_ids: Sequence[int]) -> torch.Tensor:
        if 1 in block_ids:
            raise RuntimeError("no kernel")
        return block_digest(blocks, block_ids)

    exporter = BlockExporter(small_pool(4, seed=3), broken)
    exporter.submit(ExportJob(request_id="bad", first_index=0, block_ids=(1,)))
    exporter.submit(ExportJob(request_id="good", first_index=0, block_ids=(2,)))
    wait_until(lambda: not exporter._jobs.qsize(), "the thread took both")
    exporter.close()
    bad, good = exporter.poll()
    assert bad.error == "no kernel" and bad.digests == b""
    assert good.error == "" and good.digests
