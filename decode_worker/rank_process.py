"""A rank of a decode worker's engine: `python -m decode_worker.rank_process`."""

from __future__ import annotations

from engine.process.rank_main import rank_main
from engine.runner.ranks.extension import RankParts
from ranks.line import RankExtension
from worker.kv.open_port import open_rank_port


def make_rank_reader(parts: RankParts) -> RankExtension:
    """A RankExtensionFactory."""
    return open_rank_port(parts, reads_by_trade=True)


if __name__ == "__main__":
    rank_main(make_rank_reader)
