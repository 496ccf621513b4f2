"""What is said of a hub's model to whoever installs."""

from __future__ import annotations

import pytest

from tests.deploy.chart import Manifest
from tests.deploy.test_notes_and_test_pods import notes

_MOVES = "names no commit"


@pytest.mark.parametrize("name", ["smollm2", "/var/cache/splitserve/models/ours"])
def test_nothing_is_said_of_a_model_that_is_not_the_hub_s(name: str) -> None:
    said = notes({"model": {"name": name}})
    assert _MOVES not in said and "node's disk" not in said


def test_a_model_without_a_revision_is_told_of_and_one_with_a_commit_is_not() -> None:
    said = notes({"model": {"name": "hf://a/b"}})
    assert _MOVES in said and "Each pod fetches it" in said and "hf://a/b@COMMIT" in said
    assert "hf://a/b@COMMIT" in notes({"model": {"name": "hf://a/b@main"}})
    assert _MOVES not in notes({"model": {"name": f"hf://a/b@{'c' * 40}"}})


@pytest.mark.parametrize(
    "cache", [{"claim": "models", "warmUp": True}, {"image": "models@sha256:a"}]
)
def test_pods_that_share_a_model_are_not_split_by_its_owner(cache: Manifest) -> None:
    said = notes({"model": {"name": "hf://a/b", "cache": cache}})
    assert _MOVES in said and "Each pod" not in said


def test_a_folder_of_its_own_is_told_of_with_its_size() -> None:
    said = notes({"model": {"name": "hf://a/b@v1", "cache": {"size": "40Gi"}}})
    assert "a folder of 40Gi on its node's disk (model.cache.size)" in said
