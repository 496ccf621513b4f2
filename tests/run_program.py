"""Programs that tests run to their end. One that fails, or takes too long, fails the test with its
command line and the last of what it has said, also where it was a fixture's."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

LAST_LINES = 40
_REST_S = 10.0


def run_program(
    command: Sequence[str | Path],
    *,
    limit_s: float,
    stdin: str = "",
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Whatever its exit code. After the limit, as after an interruption, it is ended with all that
    it has started."""
    words = [str(word) for word in command]
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=None if environ is None else dict(environ),
        cwd=cwd,
    ) as process:
        try:
            out, error = process.communicate(stdin, limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
            how = f"not done after {limit_s:g} s"
            raise AssertionError(_told(words, how, _rest_of(process))) from None
        except BaseException:
            _end(process)
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, error)


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    """What it prints, if it has done well."""
    if done.returncode != 0:
        how = f"exit code {done.returncode}"
        raise AssertionError(_told(done.args, how, done.stdout + done.stderr))
    return done.stdout


def _told(words: Sequence[str], how: str, said: str) -> str:
    return "\n".join((f"{shlex.join(words)}: {how}", *said.splitlines()[-LAST_LINES:]))


def _rest_of(process: subprocess.Popen[str]) -> str:
    """All that it has said; somebody may hold its streams whose parent had ended."""
    try:
        return "".join(process.communicate(timeout=_REST_S))
    except subprocess.TimeoutExpired as late:
        return b"".join(filter(None, (late.output, late.stderr))).decode(errors="replace")


def _end(process: subprocess.Popen[str]) -> None:
    """With all below it: they are in the group of whoever runs the tests, and end with that too."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    process.kill()
