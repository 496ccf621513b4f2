"""Which of a worker's cached prefixes others take over, and who takes which. Pure.

choose    the blocks that were used last, each with all before it, as far as the limit goes
share     whole prefixes, hottest first: to whom has taken one with the same first block, else to
          whom has most room left
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cluster.identity import WorkerKey
from engine.contract.messages import WarmBlock


@dataclass(frozen=True, slots=True)
class CachedPrefix:
    """From its first block on."""

    root: bytes
    names: tuple[bytes, ...]
    """Of its blocks."""
    token_ids: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """All of whole blocks."""
        return len(self.token_ids)


def choose(blocks: Iterable[WarmBlock], max_blocks: int) -> list[CachedPrefix]:
    """At most so many different blocks, as the prefixes that they make, hottest first.

    A block whose beginning is not cached any more is of no use to anybody.
    """
    by_name = {each.block.name: each for each in blocks}
    taken: dict[bytes, None] = {}
    for warm in sorted(by_name.values(), key=lambda each: -each.last_used):
        lacking = _lacking(warm, by_name, taken)
        if lacking is not None and len(taken) + len(lacking) <= max_blocks:
            taken |= dict.fromkeys(lacking)
    inner = {by_name[name].block.parent for name in taken}
    ends = [by_name[name] for name in taken if name not in inner]
    ends.sort(key=lambda each: -each.last_used)
    return [_prefix(_way_to(end, by_name)) for end in ends]


def share(
    prefixes: Sequence[CachedPrefix], room_tokens: Mapping[WorkerKey, int]
) -> dict[WorkerKey, list[CachedPrefix]]:
    """Who takes which, in the order in which it does; what has no room anywhere is left."""
    left = dict(room_tokens)
    shares: dict[WorkerKey, list[CachedPrefix]] = {key: [] for key in left}
    names: dict[WorkerKey, set[bytes]] = {key: set() for key in left}
    for prefix in prefixes:
        size = prefix.num_tokens // len(prefix.names)
        lacking = {key: size * len(set(prefix.names) - names[key]) for key in left}
        fitting = [key for key in left if lacking[key] <= left[key]]
        if not fitting:
            continue
        to = max(fitting, key=lambda key: (prefix.names[0] in names[key], left[key]))
        shares[to].append(prefix)
        names[to].update(prefix.names)
        left[to] -= lacking[to]
    return shares


def _lacking(
    end: WarmBlock, by_name: Mapping[bytes, WarmBlock], taken: Container[bytes]
) -> list[bytes] | None:
    """Names of it and of all before it that are not taken; None: one of these is not cached."""
    names: list[bytes] = []
    name: bytes | None = end.block.name
    while name is not None and name not in taken:
        if name not in by_name:
            return None
        names.append(name)
        name = by_name[name].block.parent
    return names


def _way_to(end: WarmBlock, by_name: Mapping[bytes, WarmBlock]) -> list[WarmBlock]:
    """From the first block to this one, all of which are cached."""
    way = [end]
    while (parent := way[-1].block.parent) is not None:
        way.append(by_name[parent])
    return way[::-1]


def _prefix(way: Sequence[WarmBlock]) -> CachedPrefix:
    return CachedPrefix(
        root=way[0].root or b"",
        names=tuple(each.block.name for each in way),
        token_ids=tuple(token for each in way for token in each.block.token_ids),
    )
