"""How every engine under comparison is spoken to: one JSON line in, one out. Standard library only.

    -> {"prompts": [[token ids], ...], "max_tokens": 65}
    <- {"seconds": 1.234, "tokens": [[token ids], ...]}

The first line out describes the engine. Tokens are greedy and nothing ends a sequence early. Time
is taken inside, around the engine's own call: pipes and JSON are not in it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

Generate = Callable[[list[list[int]], int], list[list[int]]]


def take_turns(about: dict[str, str], generate: Generate) -> None:
    """Serves standard input until it ends. Whatever the engine prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    answers.write(json.dumps(about) + "\n")
    for line in sys.stdin:
        asked = json.loads(line)
        started = time.perf_counter()
        tokens = generate(asked["prompts"], asked["max_tokens"])
        seconds = time.perf_counter() - started
        answers.write(json.dumps({"seconds": seconds, "tokens": tokens}) + "\n")
