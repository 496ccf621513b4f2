"""`splitserve keys`: made, listed, revoked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.key_place import key_place
from cluster.common_options import NAMESPACE
from cluster.errors import ConfigError
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
    key = cli("keys", "create", "acme", "--store", redis_server.url).stdout.strip()
    place = key_place(None, redis_server.url, NAMESPACE)
    [record] = place.read().values()
    assert (record.id, record.digest, record.tenant) == (id_of(key), digest_of(key), "acme")
    assert key_place(None, redis_server.url, "another").read() == {}
    assert place.remove(record.id) == record
    assert place.remove(record.id) is None and place.read() == {}


def test_a_store_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(ConfigError) as refused:
        key_place(None, "redis://:s3cret@127.0.0.1:1", NAMESPACE).read()
    assert "redis://127.0.0.1:1/0" in refused.value.message
    assert "s3cret" not in refused.value.message


def test_who_names_neither_a_file_nor_a_store_is_told_of_both() -> None:
    with pytest.raises(ConfigError, match="--file PATH, or --store"):
        key_place(None, None, NAMESPACE)
