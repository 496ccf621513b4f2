"""The part of docs/cli.md about configuration."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cli.config import differences
from cli.doctor import examine
from cli.main import app
from cluster.deadline import Deadline
from protos import worker_pb2
from tests.cli.doctor.played_fleet import PlayedFleet, carried, given_up, member
from tests.cli.inspect.fake_router import ADDRESS, FakeRouter

_CONTEXTS = """
### Named fleets

A context names a fleet: its router, its release on Kubernetes, the file with its join token, the
folder with its certificates. They are kept in `~/.config/splitserve/contexts.yaml` (or
`$XDG_CONFIG_HOME`, or `SPLITSERVE_CONTEXTS`), which only its owner may write. Every command that
asks a fleet takes `--context NAME`. A flag wins over a variable (`SPLITSERVE_GRPC`,
`SPLITSERVE_CONTEXT`, `SPLITSERVE_JOIN_TOKEN`, `SPLITSERVE_FLEET_TLS`), that over the context,
that over the default; what `--context` names wins over variables. `--grpc` without `--context`,
and `SPLITSERVE_GRPC` beside a context that is merely current, leave the context out altogether,
so that its token goes to no other address. `--context none` leaves the current one out for one
command, and `config use-context none` for all. Of several routers the first that listens is asked.
"""
_CONTEXT_WORDS = (
    (
        *("config", "set-context", "prod", "--router", "10.0.0.7:50052,10.0.0.8:50052"),
        *("--kubernetes", "llm/prod", "--join-token-file", "/run/secrets/prod-token"),
    ),
    ("config", "set-context", "lab", "--router", "127.0.0.1:50051"),
    ("config", "use-context", "prod"),
    ("config", "get-contexts"),
    ("config", "current-context"),
)


_HEALTH = """
`splitserve doctor` looks at this machine; `doctor --pairs` asks every decode worker of a fleet for
a prompt of made-up tokens that each prefill worker computes, so that blocks travel as they would
for a request, and says over what and how fast, or why not (1: some pair does not work). `doctor
--in-cluster` looks at what a pod sees: its account and rights, the routers' name, every router
behind it; `helm test` runs it.

`splitserve support-bundle` packs versions, options, variables of ours, the fleet's state, its
slowest requests with their explanations, the router's metrics, the ends of the latest logs of this
home and the doctor's findings into one file with a manifest, 64 MiB unpacked at most. What does not
answer in time is named in the manifest, and the rest is there. Passwords, tokens, keys and what
stands before the @ of a URL are redacted: look through it all the same before you give it away.
With `--kubernetes [NAMESPACE/]RELEASE` a release's pools, pods, events and each container's log are
in it, that before a restart too. Workers' metrics are not, nor logs of other machines. `doctor
--bundle FILE` makes one with what it has just found.
"""
COMPLETION = """
### Completion

`splitserve completion bash|zsh|fish` prints a script that completes commands, flags, contexts and
the names of a running fleet's workers; a fleet that does not answer within 0.3 s has no names.

```
eval "$(splitserve completion bash)"                                  # in ~/.bashrc
eval "$(splitserve completion zsh)"                                   # in ~/.zshrc, after compinit
splitserve completion fish > ~/.config/fish/completions/splitserve.fish
```
"""
_OPTIONS = """
### Options and files of options

`config show PROCESS` takes the flags of `splitserve PROCESS` and says what that process would be
started with, and who has said so: a flag, a variable, a line of the file, or nobody. `config
validate FILE...` names everything in files that some process would refuse (1: there is something),
`config diff FILE [FILE]` in what two files differ, or a file and the running router (1: in
something), `config schema [PROCESS]` prints a JSON Schema for editors. Passwords are redacted, and
those of a running router are not compared.
"""
_FILES = {
    "fleet.toml": 'port = 8080\nstore = "redis://:secret@db:6379/0"\nmax_num_seqs = 128\n',
    "typos.toml": 'port = 80800\nmax_num_seq = 128\nkv_memory_bytes = "4GB"\n',
    "other.toml": 'store = "redis://:other@db:6379/0"\nmax_num_seqs = 64\n',
}
_OPTION_WORDS = (
    ("config", "validate", "fleet.toml", "typos.toml"),
    ("config", "diff", "fleet.toml", "other.toml"),
    ("config", "diff", "fleet.toml"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigTranscripts:
    """In Markdown."""

    options: str
    contexts: str
    health: str


def config_transcripts() -> ConfigTranscripts:
    """Each under its words."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(differences, "GrpcDialer", lambda token: FakeRouter())
        patch.setenv("SPLITSERVE_GRPC", ADDRESS)
        files = _transcripts(_OPTION_WORDS)
    return ConfigTranscripts(
        options=_OPTIONS + files + _shown_lines(),
        contexts=_CONTEXTS + _transcripts(_CONTEXT_WORDS),
        health=_HEALTH + _pairs(),
    )


def _pairs() -> str:
    """Of a fleet in which one prefill worker cannot be read from."""

    def frames(submit: worker_pb2.Submit) -> Iterator[worker_pb2.WorkerFrame]:
        return (carried if submit.prefill[0].worker_id == "prefill-0" else given_up)(submit)

    fleet = PlayedFleet([member(name) for name in ("decode-0", "prefill-0", "prefill-1")], frames)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examine, "GrpcDialer", lambda token: fleet)
        ticks = itertools.count()
        ticking = SimpleNamespace(
            after=lambda limit_s: Deadline.after(limit_s, lambda: 0.0042 * next(ticks))
        )
        patch.setattr(examine, "Deadline", ticking)
        patch.setattr(examine.time, "perf_counter", lambda: 0.0)
        return _transcripts([("doctor", "--pairs")])


def _shown_lines() -> str:
    """The first of many."""
    words = ("config", "show", "router", "--config", "fleet.toml", "--grpc-port", "7000")
    head, *lines = _transcripts([words]).strip().splitlines()
    return "\n" + "\n".join([head, *lines[:5], "..."]) + "\n```\n"


def _transcripts(shown: Sequence[tuple[str, ...]]) -> str:
    """In a folder of `_FILES`, without contexts before the first of them."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SPLITSERVE_CONTEXTS", "contexts.yaml")
        patch.setenv("COLUMNS", "200")
        for name, text in _FILES.items():
            Path(name).write_text(text)
        for name in [name for name in os.environ if name.startswith("SPLITSERVE_")]:
            if name not in ("SPLITSERVE_CONTEXTS", "SPLITSERVE_GRPC", "SPLITSERVE_HOME"):
                patch.delenv(name)
        return "".join(_transcript(words) for words in shown)


def _transcript(words: tuple[str, ...]) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code in (0, 1), done.output
    return f"\n```\n$ splitserve {' '.join(words)}\n{done.output.rstrip()}\n```\n"
