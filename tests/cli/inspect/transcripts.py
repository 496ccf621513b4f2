"""docs/cli.md, from the commands against a router with fixed numbers:
python -m tests.cli.inspect.transcripts > docs/cli.md
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from cli.help_chapters import CHAPTERS
from tests.cli.config.transcripts import COMPLETION, config_transcripts
from tests.cli.inspect.changing import changing_transcripts
from tests.cli.inspect.everyday import everyday_transcripts
from tests.cli.inspect.fake_router import FakeRouter, run
from tests.cli.inspect.made_up_tail import with_a_slow_worker

_HEAD = """# The command line

All commands of `splitserve`, in the chapters and the order of `splitserve --help`; `splitserve
COMMAND --help` has every flag.

A command that asks a fleet asks one router (`--grpc HOST:PORT`, by default `127.0.0.1:50051`, or a
named fleet's: see "Named fleets") under the fleet's join token; `slow` and `cost` ask all that are
named, with commas between them. `chat` asks over HTTP as clients do (`--url`), and `--kubernetes`
is for a release's API server. Where a command has it, `-o table|wide|json|yaml` is the form of its
answer, and `--watch` asks again every two seconds (`--interval`). Data goes to stdout, all else to
stderr.

| exit code | of every command |
|---|---|
| 0 | done |
| 1 | no such thing, a check has found something, or it was not agreed to or not reached in time |
| 2 | wrong usage: a flag, an argument, a variable, a file |
| 3 | no router or API server answers |
| 4 | refused, and nothing was changed; the reason is on stderr |
| 130 | ended by Ctrl-C; a live `top` ends so with 0 |

Numbers are those of each worker's last beat. What follows was printed by these commands, of a fleet
whose numbers are made up (`python -m tests.cli.inspect.transcripts`); keys, ids and sizes are other
ones each time.
"""
_PROCESSES = """
`serve` starts a whole fleet and keeps it alive; `router`, `prefill-worker`, `decode-worker` and
`planner` are one process each. They run until they are ended: [operations.md](operations.md), and
their options in [options.md](options.md).
"""
_LOOKING = """
These change nothing. `status` is the whole fleet on one screen (`--check` has every worker look at
its own books: 1 if something is broken); `get` lists, `describe` tells all of one. Which ways
requests may go is asked by `routes`, in the next chapter.
"""
_WHERE = """
`explain` says why a request went where it went, and `routes` what each way to serve a prompt would
cost now.
"""
_ASKING = """
`quality` measures what quantized weights and KV cost a model's answers, in minutes:
[models.md](models.md).
"""
_SHOWN = (
    ("top", "--once"),
    ("get", "workers"),
    ("get", "workers", "-o", "wide"),
    ("get", "pools"),
    ("get", "leases", "-o", "yaml"),
    ("get", "requests"),
    ("get", "requests", "--stage", "queued", "-o", "wide"),
    ("get", "links"),
    ("describe", "pool", "decode"),
    ("describe", "request", "7f3a-0123456789ab"),
)
_SHOWN_OF_BLOCKS = (
    ("blocks",),
    ("blocks", "prefill-0", "--held", "-o", "json"),
    ("events",),
)
_SHOWN_OF_TIMES = (
    ("trace", "7f3a-0123456789ab"),
    ("trace", "--slowest", "2"),
    ("slow",),
    ("slow", "--by", "pool,worker", "-o", "wide"),
    ("cost", "--price", "prefill=2.5,decode=2.5"),
)


def transcripts() -> str:
    """The whole page, in Markdown."""
    every_day, settings = everyday_transcripts(), config_transcripts()
    texts = (
        _PROCESSES,
        _LOOKING + every_day["status"] + _transcripts(_SHOWN) + every_day["describe"]
        + _transcripts(_SHOWN_OF_BLOCKS),
        _WHERE + every_day["explain"] + every_day["routes"] + _transcripts(_SHOWN_OF_TIMES),
        changing_transcripts() + every_day["adapters"],
        settings.health + every_day["support-bundle"],
        _ASKING + every_day["chat"] + every_day["models"] + every_day["keys"],
        settings.options + every_day["config schema"] + settings.contexts
        + every_day["config set-context"] + every_day["config delete-context"]
        + COMPLETION + every_day["completion"] + every_day["version"],
    )  # fmt: skip
    chapters = zip(CHAPTERS, texts, strict=True)
    return _HEAD + "".join(f"\n## {title}\n{text}" for title, text in chapters)


def _transcripts(shown: Iterable[tuple[str, ...]]) -> str:
    return "".join(map(_transcript, shown))


def _transcript(words: tuple[str, ...]) -> str:
    router = FakeRouter(traces=with_a_slow_worker()) if words[0] == "slow" else FakeRouter()
    with pytest.MonkeyPatch.context() as patch:
        done = run(patch, router, *words)
    assert done.exit_code == 0, done.output
    return f"\n```\n$ splitserve {' '.join(words)}\n{done.stdout.rstrip()}\n```\n"


if __name__ == "__main__":
    print(transcripts(), end="")
