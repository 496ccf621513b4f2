"""A reader to be killed: takes an Offer as a line of JSON, says "reading", and reads on and on."""

from __future__ import annotations

import sys

import msgspec
import torch

from cluster.identity import new_incarnation
from kvtransfer.local_pool import LocalPool
from kvtransfer.nixl_transport import NixlTransport
from kvtransfer.selftest_peer import BLOCK_SHAPE, Offer
from kvtransfer.transport import ReadState


def main() -> None:
    """See the module."""
    offer = msgspec.json.decode(sys.stdin.buffer.readline(), type=Offer)
    ids = range(offer.peer.num_blocks)
    blocks = torch.zeros((len(ids), *BLOCK_SHAPE), dtype=torch.bfloat16)
    pool = LocalPool(blocks, torch.zeros(len(ids), dtype=torch.int64))
    transport = NixlTransport(pool, new_incarnation())
    transport.connect(offer.incarnation, offer.peer)
    said = False
    while True:
        read = transport.read_blocks(offer.incarnation, ids, ids)
        while read.poll() is ReadState.PENDING:
            if not said and blocks[0].view(torch.int16).any():
                said = announce()
        said = said or announce()


def announce() -> bool:
    """Tells the test that bytes are on their way."""
    print("reading", flush=True)
    return True


if __name__ == "__main__":
    main()
