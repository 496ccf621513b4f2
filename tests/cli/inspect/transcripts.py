"""docs/cli.md, from the commands against a router with fixed numbers:
python -m tests.cli.inspect.transcripts > docs/cli.md
"""

from __future__ import annotations

import pytest

from tests.cli.config.transcripts import config_transcripts
from tests.cli.inspect.changing import changing_transcripts
from tests.cli.inspect.everyday import everyday_transcripts
from tests.cli.inspect.fake_router import FakeRouter, run
from tests.cli.inspect.made_up_tail import with_a_slow_worker

_HEAD = """# Looking at a running fleet

Each command asks one router (`--grpc HOST:PORT`, by default `127.0.0.1:50051`, or a named
fleet's: see "Named fleets") under the fleet's join token, and changes nothing. `-o
table|wide|json|yaml` is the form of the answer; `--watch` asks again every two seconds
(`--interval`); `slow` and `cost` ask all routers that are named, with commas between them. Data
goes to stdout, all else to stderr.

| exit code | of every command |
|---|---|
| 0 | done |
| 1 | no such thing, a check has found something, or it was not agreed to or not reached in time |
| 2 | wrong usage: a flag, an argument, a variable, a file |
| 3 | no router or API server answers |
| 4 | refused, and nothing was changed; the reason is on stderr |
| 130 | ended by Ctrl-C; a live `top` ends so with 0 |

Numbers are those of each worker's last beat. What follows was printed by these commands, of a fleet
whose numbers are made up (`python -m tests.cli.inspect.transcripts`).
"""
_SHOWN = (
    ("get", "workers"),
    ("get", "workers", "-o", "wide"),
    ("get", "pools"),
    ("get", "leases", "-o", "yaml"),
    ("describe", "pool", "decode"),
    ("get", "requests"),
    ("get", "requests", "--stage", "queued", "-o", "wide"),
    ("describe", "request", "7f3a-0123456789ab"),
    ("get", "links"),
    ("events",),
    ("top", "--once"),
    ("blocks",),
    ("blocks", "prefill-0", "--held", "-o", "json"),
    ("trace", "7f3a-0123456789ab"),
    ("trace", "--slowest", "2"),
    ("slow",),
    ("slow", "--by", "pool,worker", "-o", "wide"),
    ("cost", "--price", "prefill=2.5,decode=2.5"),
)


def transcripts() -> str:
    """The whole page, in Markdown."""
    looking = "".join(_transcript(words) for words in _SHOWN)
    every_day = everyday_transcripts()
    return _HEAD + looking + changing_transcripts() + every_day + config_transcripts()


def _transcript(words: tuple[str, ...]) -> str:
    router = FakeRouter(traces=with_a_slow_worker()) if words[0] == "slow" else FakeRouter()
    with pytest.MonkeyPatch.context() as patch:
        done = run(patch, router, *words)
    assert done.exit_code == 0, done.output
    return f"\n```\n$ splitserve {' '.join(words)}\n{done.stdout.rstrip()}\n```\n"


if __name__ == "__main__":
    print(transcripts(), end="")
