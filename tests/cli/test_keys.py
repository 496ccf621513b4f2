"""`splitserve keys`: made, listed, revoked."""

from __future__ import annotations

import json
from pathlib import Path

from router.tenants.api_key import digest_of, id_of
from router.tenants.key_file import read_keys
from tests.cli.run_cli import cli
from tests.redis_server import RedisServer


def test_a_key_is_made_listed_and_revoked(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    words = ("--model", "tiny", "--requests-per-minute", "90")
    made = cli("keys", "create", "acme", "--file", str(path), *words)
    key = made.stdout.strip()
    assert made.returncode == 0 and key not in made.stderr and "acme" in made.stderr
    [record] = read_keys(path).values()
    assert (record.id, record.digest) == (id_of(key), digest_of(key))
    listed = cli("keys", "list", "--file", str(path))
    assert listed.stdout.splitlines()[1].split()[-1] == "tiny"
    assert key not in listed.stdout and record.digest not in listed.stdout
    [shown] = json.loads(cli("keys", "list", "--file", str(path), "-o", "json").stdout)
    assert shown["tenant"] == "acme" and shown["models"] == ["tiny"]
    assert cli("keys", "revoke", record.id, "--file", str(path)).returncode == 0
    assert read_keys(path) == {}
    again = cli("keys", "revoke", record.id, "--file", str(path))
    assert again.returncode == 1 and "has no key" in again.stderr


def test_a_file_that_is_not_there_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    done = cli("keys", "list", "--file", str(tmp_path / "keys.json"))
    assert done.returncode == 2 and "splitserve keys create TENANT" in done.stderr


def test_keys_are_kept_in_the_store_of_routers(redis_server: RedisServer) -> None:
    in_store = ("--store", redis_server.url)
    key = cli("keys", "create", "acme", *in_store).stdout.strip()
    [shown] = json.loads(cli("keys", "list", *in_store, "-o", "json").stdout)
    assert (shown["id"], shown["tenant"]) == (id_of(key), "acme")
    assert (
        json.loads(cli("keys", "list", *in_store, "--store-namespace", "b", "-o", "json").stdout)
        == []
    )
    assert cli("keys", "revoke", id_of(key), *in_store).returncode == 0
    assert cli("keys", "revoke", id_of(key), *in_store).returncode == 1


def test_a_store_that_is_not_there_is_named_without_its_password() -> None:
    done = cli("keys", "list", "--store", "redis://:s3cret@127.0.0.1:1")
    assert done.returncode == 2 and "redis://127.0.0.1:1/0" in done.stderr
    assert "s3cret" not in done.stderr
    assert "--file PATH" in cli("keys", "list").stderr
