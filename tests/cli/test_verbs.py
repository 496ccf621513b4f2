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
from tests.cli.verbs import ELSEWHERE, VERBS

ALL_HELP = """
import contextlib, io, json, sys, time
import typer
from cli.main import app
command, slowest_s = typer.main.get_command(app), 0.0
for words in json.loads(sys.argv[1]):
    began_s, said = time.process_time(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        command.main([*words.split(), "--help"], "splitserve")
    slowest_s = max(slowest_s, time.process_time() - began_s)
    assert said.getvalue().startswith("Usage: splitserve " + words), words
print(json.dumps([sorted({name.partition(".")[0] for name in sys.modules}), slowest_s]))
"""
HELP_LIMIT_S = 0.5
"""Of a core, beside the start of the program: on a busy machine the slowest took 0.14."""


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


def test_every_ground_tries_all_of_them_and_a_planner_beside() -> None:
    grounds = (
        "tests/fleet/test_verbs.py",
        "tests/ranks/ray/test_verbs_on_ray.py",
        "tests/deploy/test_verbs_on_kubernetes.py",
    )
    for path in grounds:
        text = (ROOT / path).read_text()
        assert "@every_verb" in text and "check_planner(ground)" in text, path


def test_the_help_of_every_command_imports_nothing_heavy_and_is_quick() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALL_HELP, json.dumps(sorted(commands()))],
        cwd=ROOT,
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded, slowest_s = json.loads(done.stdout)
    assert not set(HEAVY) & set(loaded)
    assert slowest_s < HELP_LIMIT_S
