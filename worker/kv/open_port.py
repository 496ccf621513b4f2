"""The KvPort of a worker's engine process, and of each of its other ranks."""

from __future__ import annotations

from engine.process.extension import EngineParts, Extension
from engine.runner.ranks.extension import RankParts
from kernels.dispatch.block_digest import block_digest
from kvtransfer.block_reader import BlockReader
from kvtransfer.group_reader import GroupReader
from kvtransfer.open_pool import OpenPool, open_pool
from kvtransfer.rank_reader import RankReader
from kvtransfer.reader import Reader
from ranks.launch import CONDUCTOR
from ranks.line import RankExtension
from worker.kv.export_group import ExportGroup, RankExporter, SharedPool
from worker.kv.kv_exporter import KvExporter
from worker.kv.kv_intake import KvIntake
from worker.kv.kv_port import KvPort
from worker.kv.port_words import EXPORT, INTAKE, SharedLine
from worker.kv.rank_port import RankPort


def open_port(parts: EngineParts, *, reads_by_trade: bool) -> Extension:
    """Of the process that has the engine. The incarnation names the transfer agent: no process had
    it before. `reads_by_trade`: as of a KvPort. Raises ConfigError when this pool cannot be
    exported."""
    spec, shares = parts.spec, parts.shares
    pool = open_pool(
        spec.kv_transport,
        spec.incarnation,
        parts.kv,
        shares[CONDUCTOR],
        generations=parts.generations,
        homes=parts.homes,
    )
    return KvPort(
        _exporter(parts, pool), lambda: _intake(parts, pool), reads_by_trade=reads_by_trade
    )


def open_rank_port(parts: RankParts, *, reads_by_trade: bool) -> RankExtension:
    """Of another rank."""
    spec, shares = parts.spec, parts.shares
    share = shares[parts.rank.index]
    pool = open_pool(spec.kv_transport, parts.agent_name, parts.kv, share, homes=parts.homes)
    shared = SharedPool(pool=pool.local, shares=shares, gather=parts.gather, digest=block_digest)
    return RankPort(
        RankExporter(shared, pool.transport),
        lambda: RankReader(_reader(pool), parts.rank.index),
        rank=parts.rank.index,
        reads_by_trade=reads_by_trade,
    )


def _exporter(parts: EngineParts, pool: OpenPool) -> KvExporter:
    line, shares = parts.line, parts.shares
    if line is None:
        return KvExporter(parts, pool.transport, block_digest)
    shared = SharedPool(pool=pool.local, shares=shares, gather=line.gather, digest=block_digest)
    group = ExportGroup(shared, SharedLine(line, EXPORT))
    return KvExporter(parts, pool.transport, block_digest, group=group)


def _intake(parts: EngineParts, pool: OpenPool) -> KvIntake:
    reader: Reader = _reader(pool)
    if parts.line is not None:
        line, num_ranks = SharedLine(parts.line, INTAKE), len(parts.shares)
        reader = GroupReader(reader, line, num_ranks, homes=pool.local.homes)
    return KvIntake(parts, reader, parts.spec.kv_transport)


def _reader(pool: OpenPool) -> BlockReader:
    return BlockReader(pool.transport, pool.local, block_digest)
