"""What ranks tell their conductor: typed messages, one way, on whatever hosts they are.

rank        ReportSender(address).send(RankReady | Progress | Word | LogLines | RankBeat
                                       | RankFailed)
conductor   ReportInbox(...).take()    all that has come; of an older generation nothing
"""

from __future__ import annotations

import msgspec


class Report(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What every message says first."""

    rank: int
    generation: int


class RankReady(Report, frozen=True, kw_only=True):
    """Once: it has loaded its part, and warmed up with the others."""

    pid: int
    node: str
    device: str
    """As torch names it: cpu, cuda:0."""
    num_blocks: int
    """Of the pool: the same at every rank."""
    first_kv_head: int
    num_kv_heads: int
    weight_bytes: int
    kv_bytes: int
    peak_bytes: int
    """Of memory of this process, or of its device, until now."""
    extension: bytes = b""
    """Opaque here: what a rank's extension tells the conductor's as it begins."""


class Progress(Report, frozen=True, kw_only=True):
    """While it starts: what it is at, as LoadProgress. A rank says something at least every
    second while it loads."""

    phase: str
    fraction: float


class Word(Report, frozen=True, kw_only=True):
    """Opaque here: from a rank's extension to the conductor's. In order, among those of one
    rank."""

    body: bytes


class LogLines(Report, frozen=True, kw_only=True):
    """Of a rank whose standard error is not the worker's own."""

    lines: bytes


class RankBeat(Report, frozen=True, kw_only=True):
    """The process turns: of a rank that has no memory in common with the conductor, ten times a
    second. Of others a word in the plans' segment says so."""

    num_plans: int
    """Taken so far."""
    waited_s: float
    """For others, in collectives, in all."""


class RankFailed(Report, frozen=True, kw_only=True):
    """The last word: why it cannot start, or go on. It exits with code 1 after it."""

    code: str
    message: str


AnyReport = RankReady | Progress | Word | LogLines | RankBeat | RankFailed
