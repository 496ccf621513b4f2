"""`helm upgrade` with another model while clients stream: two rolling updates, and nobody gets
a word that neither model would have said."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.deploy.chart import Manifest
from tests.deploy.load import load
from tests.deploy.other_models import home_with_other_models
from tests.deploy.release import CLAIM, VALUES, Release
from tests.mini_cluster.machine import running_cluster

pytestmark = [pytest.mark.minutes, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """One worker of each role, and one router."""
    home = home_with_other_models(tmp_path_factory.mktemp("home"))
    with running_cluster(tmp_path_factory.mktemp("cluster"), {CLAIM: home}) as cluster:
        made = Release(cluster)
        made.install(values_of("smollm2"))
        yield made


def values_of(model: str) -> Manifest:
    """The name that clients ask for stays."""
    options = VALUES["model"]["options"] | {"servedName": "smollm2"}
    return VALUES | {"model": VALUES["model"] | {"name": model, "options": options}}


@pytest.mark.parametrize("change", ["weights", "tokenizer"])
async def test_an_upgrade_to_another_model_loses_no_stream_and_mixes_none(
    release: Release, change: str
) -> None:
    before = {role: set(release.pods(role)) for role in ("router", "decode-worker")}
    async with load(release, changes_model=True):
        upgraded = values_of(f"/var/cache/splitserve/{change}.gguf")
        await asyncio.to_thread(release.upgrade, upgraded)
    assert not any(names & set(release.pods(role)) for role, names in before.items())
