"""What a worker without KV events is taken to have cached: the prompts that it served.

    a request ends well -> its prompt is taken to be there
    so much is written since that nothing of it need be left | the worker is gone -> given up

Nobody says what goes. A guess that is wrong costs one request its way: the worker computes the
prompt anew, and then it is right.
"""

from __future__ import annotations

from collections.abc import Callable


class GuessedCache:
    """Of one worker process. `give_up` makes the index forget all of it but what is still to come.

    A cache that keeps what was used last has lost a block that nobody used once as many others
    were written as it has room for. So no guess outlives that many: all are given up together.
    """

    def __init__(self, give_up: Callable[[], None]) -> None:
        self._give_up = give_up
        self._num_written_blocks = 0

    def wrote(self, num_blocks: int, *, room_blocks: int) -> None:
        """A request is over that wrote at most so many blocks; the worker holds `room_blocks`."""
        self._num_written_blocks += num_blocks
        if self._num_written_blocks > room_blocks:
            self._num_written_blocks = 0
            self._give_up()
