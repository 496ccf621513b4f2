"""A rank of a prefill worker's engine: `python -m prefill_worker.rank_process`.

It hands no KV over yet: the blocks of a group stay with it.
"""

from __future__ import annotations

from engine.process.rank_main import rank_main, run_rank
from engine.ranks.extension import no_rank_extension
from ranks.launch import RankLaunch


def run(launch: RankLaunch) -> None:
    """In a process that somebody else has started, such as an actor's."""
    run_rank(launch, no_rank_extension)


if __name__ == "__main__":
    rank_main(no_rank_extension)
