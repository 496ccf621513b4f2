"""Keys in a file: what is kept, and what is no such file."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from router.tenants.api_key import digest_of, id_of, new_key
from router.tenants.key_file import changed_keys, read_keys


def added(path: Path, tenant: str) -> str:
    """The key."""
    record, key = new_key(tenant)
    with changed_keys(path) as keys:
        keys[record.id] = record
    return key


def test_a_key_is_not_in_its_file_and_its_digest_is(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key = added(path, "acme")
    [record] = read_keys(path).values()
    assert (record.tenant, record.id, record.digest) == ("acme", id_of(key), digest_of(key))
    assert key.rpartition("-")[2] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_keys_are_of_their_own_and_long(tmp_path: Path) -> None:
    keys = {new_key("acme")[1] for _ in range(100)}
    assert len(keys) == 100 and min(map(len, keys)) >= 50


def test_many_that_change_one_file_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    threads = [threading.Thread(target=added, args=(path, f"t{at}")) for at in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {record.tenant for record in read_keys(path).values()} == {f"t{at}" for at in range(16)}
    assert [each.name for each in tmp_path.iterdir()] == ["keys.json"]


def test_what_fails_half_way_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    added(path, "acme")
    before = path.read_bytes()
    with pytest.raises(KeyError), changed_keys(path) as keys:
        keys.clear()
        raise KeyError
    assert path.read_bytes() == before


def entry(**changes: object) -> dict[str, object]:
    return {
        "id": "1",
        "digest": "00",
        "tenant": "acme",
        "created": "2026-01-01T00:00:00Z",
    } | changes


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "truncated"),
        ("[]", "object"),
        ('{"keys": [{}]}', "missing required field"),
        (json.dumps({"keys": [entry(), entry()]}), "two keys have the id '1'"),
        (json.dumps({"keys": [entry(tenant="")]}), "no tenant"),
        (json.dumps({"keys": [entry(requests_per_minute=0)]}), "allowed: above 0"),
        (json.dumps({"keys": [entry(secret="x")]}), "secret"),
    ],
    ids=["empty", "a list", "no fields", "twice", "no tenant", "no rate", "unknown field"],
)
def test_what_is_no_file_of_keys_is_refused_with_the_reason(
    content: str, what: str, tmp_path: Path
) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=what):
        read_keys(path)


def test_a_file_that_is_not_there_is_told_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="splitserve keys create TENANT --file"):
        read_keys(tmp_path / "keys.json")
    with pytest.raises(ConfigError, match="no folder"), changed_keys(tmp_path / "no" / "keys.json"):
        pass
