"""Every command is one of the verbs that are tried on all grounds, or says why it is none; and how
long its help takes."""

from __future__ import annotations

import json
import subprocess
import sys

import typer

from cli.main import app
from tests.cli.run_cli import ROOT, clean_environ
from tests.cli.test_main import HEAVY
from tests.cli.verbs import CHANGES, ELSEWHERE, VERBS
from tests.core_speed import slowness

ALL_HELP = """
import contextlib, io, json, os, sys, time
import typer
from cli.main import app
command = typer.main.get_command(app)
start_s = time.process_time()  # from the first instruction of this process
def helped(words):
    began_s, said = time.process_time(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        command.main([*words.split(), "--help"], "splitserve")
    took_s = time.process_time() - began_s
    assert said.getvalue().startswith(f"Usage: splitserve {words}".rstrip()), words
    return [start_s + took_s, sorted({name.partition(".")[0] for name in sys.modules})]
found = {}
for words in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    if os.fork() == 0:  # what one has imported no other has
        with os.fdopen(writing, "w") as result:
            json.dump(helped(words), result)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as result:
        found[words] = json.load(result)
    os.wait()
print(json.dumps(found))
"""
HELP_LIMIT_S = 0.3
"""Of a core of the usual speed, from the start of the process: what a help takes on an idle
machine, whoever else has the cores now."""
TRIES = 8
"""Caches that others empty make a core slower, too: the least of so many counts."""


def commands() -> set[str]:
    """By their words."""

    def below(group: object, before: str) -> set[str]:
        found = set()
        for name, command in group.commands.items():  # type: ignore[attr-defined]
            inner = getattr(command, "commands", None)
            if inner is not None:
                found |= below(command, f"{before}{name} ")
            else:
                found.add(f"{before}{name}")
        return found

    others = ("serve", "prefill-worker", "decode-worker", "planner")
    shown = {f"config show {name}" for name in others}
    return below(typer.main.get_command(app), "") - shown


def test_every_command_is_tried_on_all_grounds_or_says_why_not() -> None:
    known, lines = commands(), [f"{verb.line} " for verb in VERBS]
    tried = {name for name in known if any(line.startswith(f"{name} ") for line in lines)}
    untried = known - tried
    assert untried - ELSEWHERE.keys() == set(), "add it to tests/cli/verbs.py"
    assert ELSEWHERE.keys() - known == set()


def test_no_line_is_tried_twice_but_those_that_go_on_from_each_other() -> None:
    lines = [verb.line for verb in VERBS if verb.words[0] not in CHANGES]
    assert sorted(lines) == sorted(set(lines))


def test_every_ground_tries_all_of_them_and_a_planner_beside() -> None:
    grounds = (
        "tests/fleet/test_verbs.py",
        "tests/ranks/ray/test_verbs_on_ray.py",
        "tests/deploy/test_verbs_on_kubernetes.py",
    )
    for path in grounds:
        text = (ROOT / path).read_text()
        assert "@every_verb" in text and "check_planner(ground)" in text, path


def helps() -> dict[str, tuple[float, list[str]]]:
    """Seconds of a core, and what was imported, by the words before `--help`."""
    whole = {"", *(name.rpartition(" ")[0] for name in commands()), *commands()}
    done = subprocess.run(
        [sys.executable, "-c", ALL_HELP, json.dumps(sorted(whole))],
        cwd=ROOT,
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    return {words: (took_s, loaded) for words, (took_s, loaded) in json.loads(done.stdout).items()}


def test_the_help_of_every_command_imports_nothing_heavy_and_takes_less_than_300_ms() -> None:
    least: dict[str, float] = {}
    for _ in range(TRIES):
        slower, found = slowness(), helps()
        assert {words for words, (_, loaded) in found.items() if set(HEAVY) & set(loaded)} == set()
        least = {
            words: min(took_s / slower, least.get(words, took_s))
            for words, (took_s, _) in found.items()
        }
        slow = {words: took_s for words, took_s in least.items() if took_s >= HELP_LIMIT_S}
        if not slow:
            return
    raise AssertionError(slow)
