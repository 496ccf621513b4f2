"""The command line as a whole: help, flags, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import VERSION
from cluster.config import RouterOptions, ServeOptions, WorkerOptions
from cluster.options import option_specs
from tests.cli.run_cli import ROOT, clean_environ, cli

HEAVY = ["torch", "grpc", "starlette", "numpy", "rich", "aiohttp", "huggingface_hub", "nixl_cu12"]
MODULES_OF_HELP = """
import sys
sys.argv = ["splitserve", "--help"]
from cli.main import main
try:
    main()
except SystemExit:
    print([name for name in sys.argv[1:] if name])
import json
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MODULES_OF_HELP],
        cwd=ROOT,
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "typer" in loaded
    assert not set(HEAVY) & set(loaded)


def test_help_names_every_command() -> None:
    done = cli("--help")
    assert done.returncode == 0
    for command in [
        "serve",
        "router",
        "prefill-worker",
        "decode-worker",
        "chat",
        "status",
        "models",
        "doctor",
    ]:
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize(
    ("command", "cls"),
    [("serve", ServeOptions), ("router", RouterOptions), ("decode-worker", WorkerOptions)],
)
def test_every_option_of_a_process_is_a_flag(command: str, cls: type) -> None:
    shown = cli(command, "--help").stdout
    for name, spec in option_specs(cls).items():
        assert spec.flag in shown or name == "role", name
        assert spec.help.split()[0] in shown, name


def test_the_role_is_the_commands_and_not_a_flag() -> None:
    assert "--role" not in cli("prefill-worker", "--help").stdout


def test_version_is_data_on_stdout() -> None:
    done = cli("version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION}\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serve", "--prot", "1"], "No such option: --prot"),
        (["serve", "--port", "70000"], "--port is '70000'; allowed: 0 to 65535"),
        (["serve", "--dtype", "int3"], "allowed: one of auto, float32, bfloat16"),
        (["serve", "--decode", "65"], "--decode is '65'; allowed: 0 to 64"),
        (["serve", "--decode", "0"], "--decode is 0: nobody would make text with smollm2, "),
        (["serve", "one", "--model", "two"], "the model is given twice"),
        (["serve", "one", "two"], "unexpected extra argument"),
        (["router", "--config", "/no/such.toml"], "/no/such.toml cannot be read"),
        (["status", "-o", "xml"], "allowed: table, wide, json, yaml"),
        (["frobnicate"], "No such command 'frobnicate'"),
        (["chat", "--once", "x", "--url", "localhost"], "--url is 'localhost'; allowed: http://"),
        (["chat", "--once", "x", "--max-tokens", "0"], "--max-tokens"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_message_on_stderr(
    words: list[str], message: str
) -> None:
    done = cli(*words)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_unknown_variable_is_wrong_usage() -> None:
    done = cli("router", environ=clean_environ(SPLITSERVE_MAX_NUM_SEQ="1"))
    assert done.returncode == 2
    assert "did you mean SPLITSERVE_MAX_NUM_SEQS?" in done.stderr


def test_debug_lets_the_traceback_through() -> None:
    done = cli("router", "--port", "x", environ=clean_environ(SPLITSERVE_DEBUG="1"))
    assert done.returncode == 1 and "Traceback" in done.stderr and "ConfigError" in done.stderr


def test_colors_are_for_terminals_and_can_be_turned_off_anywhere() -> None:
    for words in (["status", "--grpc", "127.0.0.1:1"], ["--no-color", "status", "--grpc", "a:1"]):
        assert "\x1b[" not in cli(*words).stderr


def test_models_are_listed_from_the_cache_that_home_names(tmp_path: Path) -> None:
    done = cli("models", "list", "-o", "json", environ=clean_environ(SPLITSERVE_HOME=str(tmp_path)))
    assert done.returncode == 0
    assert [(m["source"], m["cached_path"]) for m in json.loads(done.stdout)] == [("smollm2", None)]


def test_a_model_that_is_not_here_is_a_failure_with_the_command_that_fetches_it(
    tmp_path: Path,
) -> None:
    done = cli("models", "show", "smollm2", environ=clean_environ(SPLITSERVE_HOME=str(tmp_path)))
    assert done.returncode == 1
    assert "splitserve models pull smollm2" in done.stderr
