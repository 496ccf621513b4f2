"""Large pages are a wish, and no engine fails for it."""

from __future__ import annotations

import errno
import mmap
import os

import pytest
import torch

from engine.memory.kv_pool import KvLayout, KvPool
from engine.memory.large_pages import zeroed_bytes
from tests.cluster.models.adapters.test_files import CONFIG


class Refusing(mmap.mmap):
    """As a kernel that was built without large pages."""

    def madvise(self, *given: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def test_a_system_without_large_pages_gives_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "mmap", Refusing)
    assert not zeroed_bytes(4097, torch.device("cpu")).any()
    pool = KvPool(KvLayout.of(CONFIG, 8, torch.float32), 2, "cpu")
    assert not pool.tensor.any()
