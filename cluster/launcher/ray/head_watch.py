"""Whether the head of a Ray cluster, its GCS, still answers.

Without it no actor begins, none is told to end and no death is heard of, and after a time of Ray's
own (RAY_gcs_rpc_server_reconnect_timeout_s) Ray ends every process that is connected, ours as well.
The processes of a fleet need it not: they have time to finish their requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NoReturn

from cluster.deadline import Clock, Sleep
from cluster.errors import PlaceLost
from cluster.logs import get_logger
from cluster.process.background import until_one_ends
from cluster.process.silence import Silence
from cluster.process.thread_call import in_thread

HEAD_SILENCE_S = 15.0
"""With the 30 s in which a fleet drains it is gone before Ray's own minute is over."""
_ASK_EVERY_S = 2.0

_log = get_logger("ray")


async def watch_head(
    ask: Callable[[], None],
    *,
    silence_s: float = HEAD_SILENCE_S,
    clock: Clock = time.monotonic,
    sleep: Sleep = asyncio.sleep,
) -> NoReturn:
    """`ask` returns when the head answers, and raises within seconds if not; it may block.

    Raises PlaceLost after `silence_s` without an answer.
    """
    silence = Silence(silence_s, clock=clock)
    await until_one_ends(_ask_on(ask, silence, sleep), _until_silent(silence, sleep))
    raise PlaceLost(
        f"the head of the Ray cluster (its GCS) has not answered for {silence_s:g} s; the fleet "
        "ends with it: start Ray anew, and then the fleet"
    )


async def _ask_on(ask: Callable[[], None], silence: Silence, sleep: Sleep) -> None:
    while True:
        try:
            await in_thread("a question to Ray's head", ask)
            silence.heard()
        except Exception as refusal:  # of Ray's many kinds: no answer
            _log.debug("Ray's head does not answer", cause=repr(refusal))
        await sleep(_ASK_EVERY_S)


async def _until_silent(silence: Silence, sleep: Sleep) -> None:
    while not silence.tick():
        await sleep(silence.interval_s)
