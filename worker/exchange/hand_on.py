"""A worker that is to leave has others take over what it has cached.

    its warm blocks -> which prefixes, and who takes which (choice.py) -> TakeOver, one at a time to
    each receiver -> what was taken, what is left

A receiver that fails is asked for nothing more; the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.deadline import Clock, Deadline
from cluster.dial.dialer import Dialer, PrefixCacheLink
from cluster.errors import DeadlineExceeded, InvalidRequest, OutOfBlocks, SplitserveError
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from engine.contract.warm_blocks import WarmBlocks
from protos.worker_pb2 import HandOnReport, HandOnRequest, ReceivedPrefixes, TakeOverRequest
from worker.exchange.choice import choose, share
from worker.exchange.prefill_target import PrefillTarget
from worker.exchange.warm_tree import CachedPrefix, WarmTree

_log = get_logger("worker.exchange")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingCache:
    """What is there to be handed on."""

    warm: WarmBlocks
    block_size: int
    block_bytes: int

    @property
    def num_tokens(self) -> int:
        """In all."""
        return self.warm.num_cached * self.block_size


async def hand_on(
    cache: LeavingCache, order: HandOnRequest, dialer: Dialer, deadline: Deadline, clock: Clock
) -> HandOnReport:
    """Returns at the deadline at the latest."""
    began_s = clock()
    targets = [PrefillTarget.from_wire(each.worker) for each in order.receivers]
    room = {
        target.key: each.room_tokens // cache.block_size
        for target, each in zip(targets, order.receivers, strict=True)
    }
    # not on the loop: of tens of thousands of blocks this takes longer than a beat may be late
    tree, shares = await asyncio.to_thread(_shared, cache, room, order.max_bytes)
    source = PrefillTarget.from_wire(order.source)
    received = await asyncio.gather(
        *(_to_one(target, tree, shares[target.key], source, dialer, deadline) for target in targets)
    )
    report = HandOnReport(
        cached_tokens=cache.num_tokens, receivers=received, seconds=clock() - began_s
    )
    _log.info(
        "cached prefixes are handed on",
        cached_tokens=cache.num_tokens,
        handed_tokens=sum(each.handed_tokens for each in received),
        known_tokens=sum(each.known_tokens for each in received),
        num_bytes=sum(each.num_bytes for each in received),
        seconds=round(report.seconds, 3),
    )
    return report


def _shared(
    cache: LeavingCache, room_blocks: Mapping[WorkerKey, int], max_bytes: int
) -> tuple[WarmTree, dict[WorkerKey, list[bytes]]]:
    limit = sum(room_blocks.values())
    if max_bytes:
        limit = min(limit, max_bytes // max(1, cache.block_bytes))
    tree = WarmTree(cache.warm.blocks)
    return tree, share(tree, choose(tree, limit), room_blocks)


async def _to_one(
    target: PrefillTarget,
    tree: WarmTree,
    ends: Sequence[bytes],
    source: PrefillTarget,
    dialer: Dialer,
    deadline: Deadline,
) -> ReceivedPrefixes:
    received = ReceivedPrefixes(worker_id=target.key.worker_id)
    if not ends:
        return received
    link = dialer.prefix_cache(target.address)
    said: set[bytes] = set()
    try:
        for end in ends:
            await _one(tree.prefix(end), said, source, link, deadline, received)
    except SplitserveError as error:
        received.problem = error.message
        _log.warning(
            "a worker takes over no more prefixes",
            receiver=target.key.worker_id,
            error=error.message,
        )
    finally:
        await link.close()
    return received


async def _one(
    prefix: CachedPrefix,
    said: set[bytes],
    source: PrefillTarget,
    link: PrefixCacheLink,
    deadline: Deadline,
    received: ReceivedPrefixes,
) -> None:
    """Blocks that it was told of before are not counted again as known."""
    if deadline.has_passed:
        raise DeadlineExceeded("the time for handing on prefixes is over")
    request = TakeOverRequest(
        source=source.to_wire(),
        cache_root=prefix.root,
        token_ids=prefix.token_ids,
        adapter=prefix.adapter,
    )
    try:
        taken = await link.take_over(request, timeout_s=deadline.remaining_s)
    except (OutOfBlocks, InvalidRequest) as refusal:  # of this one, such as of its length
        received.problem = refusal.message
        return
    again = sum(name in said for name in prefix.names) * (prefix.num_tokens // len(prefix.names))
    said.update(prefix.names)
    received.handed_tokens += taken.handed_tokens
    received.known_tokens += max(0, taken.known_tokens - again)
    received.num_bytes += taken.num_bytes
