"""Images that are built once for all tests of a run, in the setup of whichever comes first.

Programs have limits of their own there, and say what failed; the tests' limits count from their own
first line (`func_only`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.images.storage import Storage
from tests.deploy.images.tools import images_folder, need_tools

ROUTER, WORKER = "localhost/splitserve/router:0.1.0", "localhost/splitserve/worker:0.1.0-cpu"


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    """With the base, and nothing else yet. A folder that somebody has named stays as it is."""
    need_tools()
    named = images_folder()
    folder: Path = named or tmp_path_factory.mktemp("images")
    folder.mkdir(parents=True, exist_ok=True)
    made = Storage(folder)
    try:
        made.need_base()
        yield made
    finally:
        if named is None:
            made.remove()


@pytest.fixture(scope="session")
def router(storage: Storage) -> str:
    """The router's image, from this tree."""
    storage.build("router", ROUTER)
    return ROUTER


@pytest.fixture(scope="session")
def worker(storage: Storage) -> str:
    """The workers' image for CPUs."""
    storage.build("worker-cpu", WORKER)
    return WORKER
