"""The other process of the self-test: `python -m kvtransfer.selftest_peer NUM_BLOCKS`.

Exports a pool of random blocks, prints one line of JSON (an Offer), and ends with its stdin.
"""

from __future__ import annotations

import sys

import msgspec
import torch

from cluster.block_span import BlockSpan
from cluster.home import kernels_folder
from cluster.identity import new_incarnation
from cluster.kv_peer import KvPeer
from kernels.cpu.native_library import open_library
from kernels.dispatch.block_digest import block_digest
from kvtransfer.local_pool import LocalPool
from kvtransfer.nixl_transport import NixlTransport
from kvtransfer.verification import digest_bytes

BLOCK_SHAPE = (30, 2, 3, 16, 64)
"""[num_layers, 2, num_kv_heads, block_size, head_dim] of SmolLM2-135M in bfloat16."""

BLOCK_BYTES = 30 * 2 * 3 * 16 * 64 * 2


class Offer(msgspec.Struct, frozen=True):
    """What a reader needs: all blocks of the pool."""

    incarnation: str
    peer: KvPeer
    generations: list[int]
    digests: bytes

    def span(self, block_ids: range) -> BlockSpan:
        """Some of them, as the first blocks of a sequence."""
        every = BlockSpan(0, list(range(len(self.generations))), self.generations, self.digests)
        part = every.part(block_ids.start, block_ids.stop)
        return BlockSpan(0, part.block_ids, part.generations, part.digests)


def random_pool(num_blocks: int, seed: int) -> LocalPool:
    """Random bits, not numbers, in blocks of BLOCK_SHAPE; generations count from 100."""
    generator = torch.Generator().manual_seed(seed)
    shape = (num_blocks, *BLOCK_SHAPE)
    bits = torch.randint(-(2**15), 2**15, shape, dtype=torch.int16, generator=generator)
    return LocalPool(bits.view(torch.bfloat16), torch.arange(num_blocks) + 100)


def main() -> None:
    """See the module."""
    torch.set_num_threads(1)
    open_library(kernels_folder())  # the digests' code, as engines have it
    num_blocks, incarnation = int(sys.argv[1]), new_incarnation()
    pool = random_pool(num_blocks, seed=0)
    transport = NixlTransport(pool, incarnation)
    offer = Offer(
        incarnation=incarnation,
        peer=transport.describe(),
        generations=pool.generations.tolist(),
        digests=digest_bytes(block_digest, pool.blocks, range(num_blocks)),
    )
    sys.stdout.buffer.write(msgspec.json.encode(offer) + b"\n")
    sys.stdout.buffer.flush()
    sys.stdin.read()
    transport.close()


if __name__ == "__main__":
    main()
