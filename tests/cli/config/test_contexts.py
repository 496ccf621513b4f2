"""Contexts: the file, who wins, and that every command that asks a fleet goes by them."""

from __future__ import annotations

import inspect
import json
import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli import main, question, several_routers
from cli.config.contexts import change_context
from cli.context_file import CONTEXTS_VARIABLE, contexts_path, read_contexts
from cli.fleet_address import DEFAULT_ROUTER, resolve_fleet
from cli.fleet_options import _commands
from cluster.errors import ConfigError
from cluster.join_token import JOIN_TOKEN
from tests.cli.inspect.fake_router import ADDRESS, FakeRouter
from tests.cli.run_cli import ROOT

TOKEN = "a-token-of-this-context"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where contexts are kept; there is none yet."""
    for name in ("SPLITSERVE_CONTEXT", "SPLITSERVE_GRPC", JOIN_TOKEN, "SPLITSERVE_FLEET_TLS"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "config" / "contexts.yaml"
    monkeypatch.setenv(CONTEXTS_VARIABLE, str(path))
    return path


def config(*words: str) -> Result:
    return CliRunner().invoke(main.app, ["config", *words])


def made(*words: str) -> None:
    done = config("set-context", *words)
    assert done.exit_code == 0, done.output


def test_a_context_is_made_used_changed_and_forgotten(file: Path) -> None:
    made("prod", "--router", "a:1,b:2", "--kubernetes", "llm/prod")
    assert config("use-context", "prod").exit_code == 0
    made("prod", "--join-token-file", "/run/token", "--kubernetes", "none")
    listed = json.loads(config("get-contexts", "-o", "json").stdout)
    assert listed == [
        {
            "name": "prod",
            "current": True,
            "router": "a:1,b:2",
            "release": None,
            "join_token_file": "/run/token",
            "fleet_tls": None,
            "price": None,
        }
    ]
    assert config("delete-context", "prod").exit_code == 0
    assert read_contexts(file).current is None
    assert "no contexts in" in config("get-contexts").stdout


def test_a_context_has_prices_that_the_variable_wins_over(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made("prod", "--router", ADDRESS, "--price", "prefill=3.6")
    assert config("set-context", "prod", "--price", "gpu").exit_code == 2
    patch_dialers(monkeypatch)
    paid = CliRunner().invoke(main.app, ["cost", "-o", "json", "--context", "prod"])
    assert json.loads(paid.stdout)["pools"][1]["cost"] == pytest.approx(3.6)
    assert config("use-context", "prod").exit_code == 0
    monkeypatch.setenv("SPLITSERVE_PRICE", "prefill=7.2")
    paid = CliRunner().invoke(main.app, ["cost", "-o", "json"])
    assert json.loads(paid.stdout)["pools"][1]["cost"] == pytest.approx(7.2)


def patch_dialers(patch: pytest.MonkeyPatch) -> None:
    """Every command asks a router with fixed numbers."""
    for asking in (question, several_routers):
        patch.setattr(asking, "GrpcDialer", lambda token: FakeRouter())


def test_the_file_is_its_owners_alone_and_holds_no_lock_open(file: Path) -> None:
    made("prod", "--router", "a:1")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_file_that_others_may_write_is_refused_with_what_mends_it(file: Path) -> None:
    made("prod", "--router", "a:1")
    file.chmod(0o620)
    done = config("get-contexts")
    assert (done.exit_code, done.stdout) == (2, "") and f"chmod 600 {file}" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [("contexts: {a: {rooter: x}}", "rooter"), ("contexts: [", "contexts.yaml"), ("8", "object")],
)
def test_a_file_that_is_none_is_wrong_usage_and_names_what_is_wrong(
    file: Path, text: str, said: str
) -> None:
    file.parent.mkdir()
    file.write_text(text)
    file.chmod(0o600)
    done = config("get-contexts")
    assert done.exit_code == 2 and said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("..", "--router", "a:1"),
        ("none", "--router", "a:1"),
        ("a", "--router", "a"),
        ("a", "--router", "a:99999"),
        ("a", "--router", "http://a:1"),
        ("a", "--kubernetes", "a/b/c"),
    ],
)
def test_what_is_no_name_address_or_release_is_refused_and_nothing_is_written(
    file: Path, words: tuple[str, ...]
) -> None:
    assert config("set-context", *words).exit_code == 2
    assert not file.exists()


@pytest.mark.parametrize("verb", ["use-context", "delete-context"])
def test_a_context_that_is_not_there_is_refused_with_those_that_are(file: Path, verb: str) -> None:
    made("prod", "--router", "a:1")
    done = config(verb, "prd")
    assert done.exit_code == 2 and "it has: prod" in done.stderr


def test_changes_at_once_are_all_kept(file: Path) -> None:
    names = [f"c{number}" for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: change_context(name, {"router": "a:1"}), names))
    assert sorted(read_contexts(file).contexts) == sorted(names)


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert contexts_path({CONTEXTS_VARIABLE: "/a/b"}) == Path("/a/b")
    assert contexts_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/splitserve/contexts.yaml")
    monkeypatch.setenv("HOME", "/home/me")
    assert contexts_path({}) == Path("/home/me/.config/splitserve/contexts.yaml")


def environ(file: Path, **more: str) -> dict[str, str]:
    return {CONTEXTS_VARIABLE: str(file), **more}


def test_flag_wins_over_variable_over_context_over_default(file: Path) -> None:
    assert resolve_fleet(environ=environ(file)).router.value == DEFAULT_ROUTER
    made("one", "--router", "one:1")
    made("two", "--router", "two:2")
    config("use-context", "one")
    by_variable = environ(file, SPLITSERVE_GRPC="three:3")
    assert resolve_fleet(environ=environ(file)).router.value == "one:1"
    assert resolve_fleet(environ=by_variable).router.value == "three:3"
    assert resolve_fleet(environ=by_variable, grpc="four:4").router.value == "four:4"
    assert resolve_fleet(environ=by_variable, context="two").router.value == "two:2"
    assert resolve_fleet(environ=by_variable, context="two", grpc="x:5").router.value == "x:5"
    of_two = environ(file, SPLITSERVE_CONTEXT="two")
    assert resolve_fleet(environ=of_two).router.value == "two:2"
    assert resolve_fleet(environ=of_two, context="one").router.value == "one:1"
    assert resolve_fleet(environ=of_two, context="none").router.value == DEFAULT_ROUTER


def test_a_token_goes_to_no_address_that_its_context_was_not_named_for(file: Path) -> None:
    made("one", "--router", "one:1", "--join-token-file", "/one")
    config("use-context", "one")
    for fleet in (
        resolve_fleet(environ=environ(file), grpc="elsewhere:1"),
        resolve_fleet(environ=environ(file, SPLITSERVE_GRPC="elsewhere:1")),
        resolve_fleet(environ=environ(file, SPLITSERVE_CONTEXT="one"), grpc="elsewhere:1"),
        resolve_fleet(environ=environ(file), kubernetes="a/b"),
    ):
        assert (fleet.join_token_file.value, fleet.context.value) == (None, None)
    named = resolve_fleet(environ=environ(file), grpc="elsewhere:1", context="one")
    assert named.join_token_file.value == "/one"


def test_a_token_of_the_environment_is_weaker_than_context_on_the_command_line(file: Path) -> None:
    made("one", "--router", "one:1", "--join-token-file", "/one")
    config("use-context", "one")
    of_variable = environ(file, **{JOIN_TOKEN: "x" * 20})
    assert resolve_fleet(environ=of_variable).join_token_file.source == JOIN_TOKEN
    assert resolve_fleet(environ=of_variable, context="one").join_token_file.value == "/one"


def test_a_release_without_a_router_is_said_where_a_router_is_needed(file: Path) -> None:
    made("k8s", "--kubernetes", "llm/prod")
    fleet = resolve_fleet(environ=environ(file), context="k8s")
    assert fleet.release.value == "llm/prod"
    with pytest.raises(ConfigError, match="set-context k8s --router HOST:PORT"):
        fleet.one_router()


def test_of_several_routers_the_first_that_listens_is_asked(file: Path) -> None:
    with socket.socket() as listener, socket.socket() as silent:
        listener.bind(("127.0.0.1", 0))
        silent.bind(("127.0.0.1", 0))
        listener.listen()
        here = f"127.0.0.1:{listener.getsockname()[1]}"
        nobody = f"127.0.0.1:{silent.getsockname()[1]}"
        fleet = resolve_fleet(environ=environ(file), grpc=f"{nobody},{here}")
        assert fleet.one_router() == here
        assert fleet.all_routers() == f"{nobody},{here}"


def test_a_command_is_asked_under_the_contexts_token_and_leaves_no_trace_of_it(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    made("one", "--router", ADDRESS, "--join-token-file", str(tmp_path / "token"))
    shown: list[str | None] = []

    def dialer(token: str | None) -> FakeRouter:
        shown.append(token)
        return FakeRouter()

    monkeypatch.setattr(question, "GrpcDialer", dialer)
    done = CliRunner().invoke(main.app, ["get", "workers", "--context", "one"])
    assert (done.exit_code, shown) == (0, [TOKEN]), done.output
    assert JOIN_TOKEN not in os.environ


def test_a_token_file_that_is_away_is_wrong_usage(file: Path) -> None:
    made("one", "--router", ADDRESS, "--join-token-file", "/no/such/token")
    done = CliRunner().invoke(main.app, ["get", "workers", "--context", "one"])
    assert done.exit_code == 2 and "/no/such/token" in done.stderr


def test_current_context_says_where_each_word_comes_from(file: Path) -> None:
    made("one", "--router", "one:1", "--join-token-file", "/one")
    config("use-context", "one")
    told = json.loads(config("current-context", "-o", "json").stdout)
    assert told["context"] == {"value": "one", "from": f"current in {file}"}
    assert told["router"] == {"value": "one:1", "from": "context one"}
    assert told["fleet_tls"] == {"value": None, "from": "default"}
    told = json.loads(config("current-context", "--context", "none", "-o", "json").stdout)
    assert told["router"] == {"value": DEFAULT_ROUTER, "from": "default"}


def test_every_command_that_asks_a_fleet_takes_a_context() -> None:
    without = []
    for command in _commands(main.app):
        assert command.callback is not None
        names = inspect.signature(command.callback).parameters
        if {"grpc", "kubernetes", "release"} & names.keys() and "context" not in names:
            without.append(command.callback.__name__)
    assert without == [
        *("serve", "planner"),  # processes, by their options
        "set_context",
        *("show", "show"),  # of those processes
    ]


def test_the_default_address_is_written_once() -> None:
    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "cli").rglob("*.py"))
        if DEFAULT_ROUTER in path.read_text()
    ]
    assert found == ["cli/fleet_address.py"]
