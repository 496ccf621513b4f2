"""`config diff`: two files, or a file and the running router."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.config import differences
from cli.main import app
from cluster.common_options import StoreOptions
from cluster.config import RouterOptions
from cluster.errors import WorkerLost, WrongToken
from tests.cli.inspect.fake_router import ADDRESS, FakeRouter


def diff(*words: str) -> Result:
    return CliRunner().invoke(app, ["config", "diff", *words])


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_what_two_files_differ_in_is_shown_with_defaults_for_what_one_leaves_out(
    tmp_path: Path,
) -> None:
    one = written(tmp_path, "one.toml", "port = 1\nmax_num_seqs = 64\nkv_memory_bytes = '1KiB'\n")
    two = written(tmp_path, "two.toml", "port = 2\nkv_memory_bytes = 1024\n")
    done = diff(one, two, "-o", "json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == [{"option": "port", "left": 1, "right": 2}]
    assert diff(one, one).exit_code == 0
    three = written(tmp_path, "three.toml", "max_num_seqs = 5\n")
    assert "64 (default)" in diff(two, three).stdout


def test_a_password_that_differs_is_seen_and_not_shown(tmp_path: Path) -> None:
    one = written(tmp_path, "one.toml", "store = 'redis://:first-one@h'\n")
    two = written(tmp_path, "two.toml", "store = 'redis://:second-one@h'\n")
    done = diff(one, two)
    assert done.exit_code == 1 and "redis://***@h" in done.stdout
    assert "first-one" not in done.stdout and "second-one" not in done.stdout


def test_a_file_that_is_wrong_is_wrong_usage(tmp_path: Path) -> None:
    done = diff(written(tmp_path, "one.toml", "prot = 1\n"), "x")
    assert done.exit_code == 2 and "did you mean port?" in done.stderr


@pytest.fixture
def router(monkeypatch: pytest.MonkeyPatch) -> FakeRouter:
    store = StoreOptions(store="redis://:hunter22@h")
    fake = FakeRouter(started_with=RouterOptions(port=1, ping_interval_s=3.0, store=store))
    monkeypatch.setattr(differences, "GrpcDialer", lambda token: fake)
    return fake


def test_a_file_and_the_running_router(tmp_path: Path, router: FakeRouter) -> None:
    text = "port = 1\nmax_num_seqs = 3\nmax_preemptions = 0\nstore = 'redis://:hunter22@h'\n"
    done = diff(written(tmp_path, "one.toml", text), "--grpc", ADDRESS, "-o", "json")
    assert done.exit_code == 1, done.output
    assert json.loads(done.stdout) == [
        {"option": "max_preemptions", "left": 0, "right": 1},
        {"option": "ping_interval_s", "left": 15.0, "right": 3.0},
    ]


@pytest.mark.parametrize(("failure", "code"), [(WorkerLost("gone"), 3), (WrongToken("no"), 4)])
def test_a_router_that_does_not_answer(
    tmp_path: Path, router: FakeRouter, failure: WorkerLost | WrongToken, code: int
) -> None:
    router.failure = failure
    done = diff(written(tmp_path, "one.toml", ""), "--grpc", ADDRESS)
    assert (done.exit_code, done.stdout) == (code, "")
