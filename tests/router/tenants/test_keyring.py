"""Who asks: keys that are known, and whatever else somebody may send."""

from __future__ import annotations

import asyncio
from hmac import compare_digest
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster.errors import RateLimited, Unauthenticated
from router.tenants import keyring
from router.tenants.account import Account
from router.tenants.api_key import KeyTerms, id_of, new_key
from router.tenants.key_file import changed_keys
from router.tenants.keyring import FileKeyring, KnownKeys, OpenDoor
from router.tenants.limit_store import MemoryLimits
from router.tenants.limits import LEAST_BURST
from router.tenants.priority import Priority
from router.tenants.tenant import ANYBODY, Tenant
from tests.manual_clock import ManualClock
from tests.router.front_fakes import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def add(path: Path, tenant: str, **terms: Any) -> str:
    record, key = new_key(tenant, KeyTerms(**terms))
    with changed_keys(path) as keys:
        keys[record.id] = record
    return key


def is_known(ring: FileKeyring, key: str) -> bool:
    try:
        ring.let_in(f"Bearer {key}")
    except Unauthenticated:
        return False
    return True


def test_a_key_is_its_tenant_s(path: Path) -> None:
    ours, theirs = add(path, "acme"), add(path, "umbrella")
    ring = FileKeyring(path)
    assert ring.let_in(f"Bearer {ours}") == Tenant("acme")
    assert ring.let_in(f"bearer   {theirs} ") == Tenant("umbrella")


def test_a_tenant_has_the_class_and_the_weight_of_its_key(path: Path) -> None:
    key = add(path, "acme", priority=Priority.BATCH, weight=2.5)
    tenant = FileKeyring(path).let_in(f"Bearer {key}")
    assert (tenant.priority, tenant.weight, tenant.account) == (Priority.BATCH, 2.5, None)


def account_of(ring: FileKeyring, key: str) -> Account:
    account = ring.let_in(f"Bearer {key}").account
    assert account is not None
    return account


def test_nothing_else_is_let_in(path: Path) -> None:
    key = add(path, "acme")
    ring = FileKeyring(path)
    wrong = ["", "Bearer", "Bearer ", key, f"Basic {key}", f"Bearer {key}x", f"Bearer {key[:-1]}"]
    wrong += [f"Bearer sk-{id_of(key)}-", f"Bearer {id_of(key)}", "Bearer sk--", "Bearer \udcff"]
    for each in wrong:
        with pytest.raises(Unauthenticated):
            ring.let_in(each)
    with pytest.raises(Unauthenticated, match="Authorization: Bearer KEY"):
        ring.let_in(None)


def test_keys_are_compared_in_a_time_that_tells_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, compared = add(path, "acme"), list[int]()

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(len(one))
        return compare_digest(one, other)

    monkeypatch.setattr("router.tenants.keyring.hmac.compare_digest", compare)
    ring = FileKeyring(path)
    for wrong in (f"{key[:-1]}~", f"{key[:-20]}{'~' * 20}"):
        with pytest.raises(Unauthenticated):
            ring.let_in(f"Bearer {wrong}")
    ring.let_in(f"Bearer {key}")
    assert len(compared) == 3 and len(set(compared)) == 1, "digests, whatever the key's length"


def test_without_a_file_nobody_is_asked() -> None:
    assert OpenDoor().let_in(None) == OpenDoor().let_in("Bearer none") == ANYBODY


async def test_keys_that_are_made_and_revoked_are_known_soon_and_a_broken_file_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keyring, "LOOK_INTERVAL_S", 0.001)
    first = add(path, "acme")
    ring = FileKeyring(path)
    following = asyncio.create_task(ring.follow())
    second = add(path, "umbrella")
    await until(lambda: is_known(ring, second), "a new key is known")
    path.write_text("{")
    said: list[str] = []
    await until(lambda: "stay as they were" in said_by(capsys, said), "the broken file is told of")
    assert is_known(ring, first) and is_known(ring, second)
    path.unlink()
    add(path, "another")
    await until(lambda: not is_known(ring, first), "a revoked key is refused")
    assert not following.done()
    following.cancel()


def said_by(capsys: pytest.CaptureFixture[str], so_far: list[str]) -> str:
    so_far += capsys.readouterr()
    return "".join(so_far)


async def test_a_rate_goes_on_from_where_it_stands_when_the_file_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "LOOK_INTERVAL_S", 0.001)
    key = add(path, "acme", requests_per_minute=1.0)
    ring = FileKeyring(path, clock=ManualClock())
    account = account_of(ring, key)
    for _ in range(LEAST_BURST):
        await account.enter()
    following = asyncio.create_task(ring.follow())
    new = add(path, "umbrella")
    await until(lambda: is_known(ring, new), "the change is known")
    assert account_of(ring, key) is account  # what is as it was is not made anew
    with pytest.raises(RateLimited):
        await account_of(ring, key).enter()
    following.cancel()


def test_a_change_of_one_key_makes_no_other_anew() -> None:
    records = {f"{number:08x}": new_key("acme")[0] for number in range(100)}
    known = KnownKeys(MemoryLimits(ManualClock()))
    known.take(records)
    before = dict(known._entries)
    changed = msgspec.structs.replace(records["00000007"], weight=2.0)
    known.take(records | {"00000007": changed})
    anew = [key for key, entry in known._entries.items() if entry is not before[key]]
    assert anew == ["00000007"] and known._entries["00000007"].tenant.weight == 2.0
