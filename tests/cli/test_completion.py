"""Completion, as a real bash asks for it."""

from __future__ import annotations

import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cli import completion
from tests.cli.run_cli import ROOT, TIMEOUT_S, clean_environ, cli
from tests.cli.test_status import running_fleet

_ASK = """
eval "$(splitserve completion bash)"
COMP_WORDS=({words}) COMP_CWORD={index}
"$(complete -p splitserve | sed 's/.*-F \\([^ ]*\\).*/\\1/')" splitserve
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(folder: Path, *words: str, **environ: str) -> list[str]:
    """What bash would offer for the last word."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    program = folder / "splitserve"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cli "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    all_words = ("splitserve", *words)
    quoted = " ".join(f"'{word}'" for word in all_words)
    around = clean_environ(**environ)
    done = subprocess.run(
        [bash, "--norc", "-c", _ASK.format(words=quoted, index=len(words))],
        cwd=ROOT,
        env=around | {"PATH": f"{folder}:{around['PATH']}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_flags_and_choices(tmp_path: Path) -> None:
    assert completed(tmp_path, "desc") == ["describe"]
    assert "--max-queued-requests" in completed(tmp_path, "router", "--max-q")
    assert completed(tmp_path, "config", "show", "pre") == ["prefill-worker"]


def test_bash_completes_the_names_of_contexts(tmp_path: Path) -> None:
    file = tmp_path / "contexts.yaml"
    environ = {"SPLITSERVE_CONTEXTS": str(file)}
    for name in ("prod", "prelude", "lab"):
        cli("config", "set-context", name, "--router", "a:1", environ=clean_environ(**environ))
    assert completed(tmp_path, "config", "use-context", "pr", **environ) == ["prelude", "prod"]
    assert completed(tmp_path, "status", "--context", "l", **environ) == ["lab"]


def test_bash_completes_the_names_of_a_live_fleets_workers(
    tmp_path: Path,
) -> None:
    with running_fleet() as fleet:
        for name in ("decode-0", "decode-1", "prefill-0", "decode;reboot"):
            fleet.add(name, "decode")
        words = ("describe", "--grpc", fleet.address, "worker", "dec")
        found = until_in_time(tmp_path, words)
        assert found == ["decode-0", "decode-1"]
        assert until_in_time(tmp_path, ("blocks", "--grpc", fleet.address, "pre")) == ["prefill-0"]


def until_in_time(folder: Path, words: tuple[str, ...]) -> list[str]:
    """On a busy machine an answer may take more than the time there is: then nothing is offered."""
    for _ in range(20):
        if found := completed(folder, *words):
            return found
    return []


def test_a_fleet_that_is_silent_has_no_words_and_says_nothing(tmp_path: Path) -> None:
    with socket.socket() as listener:  # accepts, and never speaks
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert completed(tmp_path, "describe", "--grpc", address, "worker", "dec") == []


@pytest.mark.parametrize("shell", list(completion.Shell))
def test_there_is_a_script_for_each_shell(shell: completion.Shell) -> None:
    done = cli("completion", shell.value)
    assert done.returncode == 0 and completion.VARIABLE in done.stdout and done.stderr == ""


def test_another_shell_is_wrong_usage() -> None:
    assert cli("completion", "tcsh").returncode == 2
