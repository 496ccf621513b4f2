"""How every engine under comparison is spoken to: one JSON line in, one out. Standard library only.

    -> {"prompts": [[token ids], ...], "max_tokens": 65}
    <- {"seconds": 1.234, "tokens": [[token ids], ...]}

The first line out describes the engine. Tokens are greedy and nothing ends a sequence early. Time
is taken inside, around the engine's own call: pipes and JSON are not in it. Whatever the engine and
its processes print goes to standard error, from `answers_only` on.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import IO

Generate = Callable[[list[list[int]], int], list[list[int]]]


def answers_only() -> IO[str]:
    """The standard output, for answers; what others write there goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def take_turns(answers: IO[str], about: dict[str, str], generate: Generate) -> None:
    """Serves standard input until it ends."""
    answers.write(json.dumps(about) + "\n")
    for line in sys.stdin:
        asked = json.loads(line)
        started = time.perf_counter()
        tokens = generate(asked["prompts"], asked["max_tokens"])
        seconds = time.perf_counter() - started
        answers.write(json.dumps({"seconds": seconds, "tokens": tokens}) + "\n")
