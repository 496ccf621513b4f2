"""`config show`: every option, its value, and who has said it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.config.roles import OPTIONS_OF, ProcessKind
from cli.main import app
from cluster.options import option_specs


def show(*words: str) -> Result:
    return CliRunner().invoke(app, ["config", "show", *words])


def by_option(done: Result) -> dict[str, dict[str, object]]:
    assert done.exit_code == 0, done.output
    return {each["option"]: each for each in json.loads(done.stdout)}


@pytest.mark.parametrize("kind", list(ProcessKind))
def test_every_option_of_every_process_is_shown(kind: ProcessKind) -> None:
    shown = by_option(show(kind.value, "-o", "json"))
    assert list(shown) == list(option_specs(OPTIONS_OF[kind]))


def test_who_has_said_it_is_flag_variable_file_or_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("# of all\nport = 1\ngrpc_port = 2\nping_interval_s = 3\n")
    monkeypatch.setenv("SPLITSERVE_GRPC_PORT", "4")
    monkeypatch.setenv("SPLITSERVE_PING_INTERVAL_S", "5")
    words = ("router", "--config", str(file), "--ping-interval-s", "6", "-o", "json")
    shown = by_option(show(*words))
    told = {name: (shown[name]["value"], shown[name]["source"]) for name in shown}
    assert told["ping_interval_s"] == (6.0, "--ping-interval-s")
    assert told["grpc_port"] == (4, "SPLITSERVE_GRPC_PORT")
    assert told["port"] == (1, f"{file}:2: port")
    assert told["host"] == ("127.0.0.1", "default")
    origins = [shown[name]["origin"] for name in ("host", "port", "grpc_port", "ping_interval_s")]
    assert origins == ["default", "file", "environment", "flag"]


def test_a_table_has_a_row_for_each_and_wide_says_what_it_means() -> None:
    done = show("decode-worker", "-o", "wide")
    heading, role, *_ = done.stdout.splitlines()
    assert heading.split() == ["OPTION", "VALUE", "FROM", "VARIABLE", "MEANS"]
    assert role.split() == [
        "role",
        "decode",
        "command",
        "SPLITSERVE_ROLE",
        "prefill",
        "or",
        "decode",
    ]


def test_a_password_in_a_url_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLITSERVE_STORE", "redis://me:hunter22@h:1/0")
    for form in ("table", "wide", "json", "yaml"):
        done = show("router", "-o", form)
        assert "hunter22" not in done.stdout and "redis://***@h:1/0" in done.stdout


def test_without_a_process_all_that_share_a_file_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("max_num_seqs = 3\nport = 0\n")
    done = show("--config", str(file), "-o", "json")
    told = json.loads(done.stdout)
    assert list(told) == ["router", "prefill-worker", "decode-worker", "planner"]
    seats = {each["option"]: each["value"] for each in told["prefill-worker"]}
    assert seats["max_num_seqs"] == 3 and seats["role"] == "prefill"


def test_what_the_process_would_refuse_is_refused_here() -> None:
    done = show("router", "--port", "70000")
    assert done.exit_code == 2 and "--port is '70000'; allowed: 0 to 65535" in done.stderr
