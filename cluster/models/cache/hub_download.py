"""Fetches a model of the Hugging Face hub into a plain folder: safetensors and text files only.

An interrupted download goes on where it stopped: the hub's client keeps partial files in the
folder. The caller holds the cache lock.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import ChecksumMismatch, SourceUnreachable, UnsupportedModel
from cluster.models.cache.hub_commits import (
    COMPLETE,
    complete_commit,
    current_folder,
    folder_beside,
    is_commit,
    switch,
    take_along,
)
from cluster.models.cache.hub_progress import silent_bars
from cluster.models.cache.source import HubSource
from cluster.models.files.disk import disk_errors, landing, require_digest, require_free
from cluster.models.files.manifest import MANIFEST, StatedFile, stated_file, write_manifest
from cluster.models.files.progress import ByteProgress
from cluster.models.files.weights_digest import DigestCache

if TYPE_CHECKING:  # the hub's client is imported when a model is fetched
    from huggingface_hub.hf_api import RepoSibling

PATTERNS = ("*.json", "*.safetensors", "tokenizer.*", "*.jinja", "*.model")
"""Never a pickle (.bin, .pt, .pth)."""
_IN_FOLDERS = re.compile(
    r"[0-9]{1,2}_Pooling/config\.json|additional_chat_templates/tool_use\.jinja"
)
TIMEOUT_S = 20.0
_AGAIN = "fetch it again with `splitserve models pull`"


@dataclass(frozen=True, slots=True)
class HubListing:
    """What a repository holds of what is wanted, at one commit."""

    commit: str
    files: list[RepoSibling]


def fetch_hub_model(
    source: HubSource, revision: Path, digests: DigestCache, progress: ByteProgress
) -> None:
    """What is there and is what the hub has is not touched, and what is read goes on being read
    while another commit is fetched. Weights are read for their digests once: a try after this one,
    and whoever loads them, finds these on record. Raises SourceUnreachable, UnsupportedModel,
    DiskFull or ChecksumMismatch."""
    with hub_errors(source), disk_errors(revision):
        listing = hub_listing(source)
        now = current_folder(revision)
        if (commit := complete_commit(now)) is None:
            _fetch(source, listing, now, digests, progress, kept={})
            return
        same = [file for file in listing.files if _is_same(now, file, digests)]
        is_whole = len(same) == len(listing.files)
        has_moved = is_commit(listing.commit) and listing.commit != commit
        if is_whole and not (has_moved and _has_others(now, listing)):
            _finish(listing, now, digests)
        elif not has_moved:
            _fetch(source, listing, now, digests, progress, kept={})
        else:
            beside = folder_beside(revision, listing.commit)
            weights = [file.rfilename for file in same if is_weights(file)]
            names = sorted(take_along(now, beside, weights))
            kept = {name: stated_file(now / name, digests.of_file) for name in names}
            _fetch(source, listing, beside, digests, progress, kept=kept)
            switch(revision, listing.commit)


def _fetch(
    source: HubSource,
    listing: HubListing,
    folder: Path,
    digests: DigestCache,
    progress: ByteProgress,
    *,
    kept: Mapping[str, StatedFile],
) -> None:
    """All but `kept`, weights that are there and were checked elsewhere."""
    missing = [file for file in listing.files if file.rfilename not in kept]
    download(source, HubListing(listing.commit, missing), folder, progress)
    if kept:
        write_manifest(folder, kept)  # so that none of these is read once more
    check_fetched(folder, listing.files, digests)
    _finish(listing, folder, digests)


def _finish(listing: HubListing, folder: Path, digests: DigestCache) -> None:
    """Says what is there; of what was said before, each file is replaced in one step."""
    weights = [folder / file.rfilename for file in listing.files if is_weights(file)]
    write_manifest(folder, {path.name: stated_file(path, digests.of_file) for path in weights})
    with landing(folder / COMPLETE) as mark:
        mark.write(listing.commit.encode())


def hub_listing(source: HubSource) -> HubListing:
    """Within `hub_errors`. Raises UnsupportedModel where there are no weights that are read."""
    from huggingface_hub import HfApi

    info = HfApi(endpoint=_endpoint()).model_info(
        source.repository, revision=source.revision, files_metadata=True, timeout=TIMEOUT_S
    )
    files = [file for file in info.siblings or [] if _wanted(file.rfilename)]
    _require_safetensors(source, files)
    return HubListing(info.sha or "", files)


def download(source: HubSource, listing: HubListing, folder: Path, progress: ByteProgress) -> None:
    """The listed files, not yet checked; the folder is not complete until its caller says so.
    Within `hub_errors` and `disk_errors`."""
    from huggingface_hub import snapshot_download

    total = sum(file.size or 0 for file in listing.files)
    folder.mkdir(parents=True, exist_ok=True)
    for mark in (COMPLETE, MANIFEST):
        (folder / mark).unlink(missing_ok=True)
    present = sum(_present_bytes(folder, file) for file in listing.files)
    require_free(folder, max(0, total - present))
    progress("download", min(present, total), total)
    snapshot_download(
        source.repository,
        revision=listing.commit or None,
        local_dir=folder,
        allow_patterns=[file.rfilename for file in listing.files],
        endpoint=_endpoint(),
        tqdm_class=silent_bars(progress, present, total),
    )
    progress("download", total, total)


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _wanted(name: str) -> bool:
    """Files of the top folder, what sentence-transformers says of pooling, templates for tools."""
    if "/" in name:
        return _IN_FOLDERS.fullmatch(name) is not None
    return any(fnmatch(name, pattern) for pattern in PATTERNS)


def is_weights(file: RepoSibling) -> bool:
    """Of those that are wanted."""
    return file.rfilename.endswith(".safetensors")


def _require_safetensors(source: HubSource, files: list[RepoSibling]) -> None:
    if not any(is_weights(file) for file in files):
        raise UnsupportedModel(
            f"hf://{source.repository} has no .safetensors files; pickled weights are never read"
        )


def _present_bytes(folder: Path, file: RepoSibling) -> int:
    path = folder / file.rfilename
    return path.stat().st_size if path.is_file() else 0


def check_fetched(folder: Path, files: list[RepoSibling], digests: DigestCache) -> None:
    """One that is not what the hub states goes, since its client would believe it the next time.
    Raises ChecksumMismatch."""
    for file in files:
        try:
            check_file(folder, file, digests)
        except ChecksumMismatch:
            (folder / file.rfilename).unlink(missing_ok=True)
            raise


def check_file(folder: Path, file: RepoSibling, digests: DigestCache) -> None:
    """Size always, content where the hub states a SHA-256 (weights) or a git blob id (text)."""
    path = folder / file.rfilename
    size = _present_bytes(folder, file)
    if file.size is not None and size != file.size:
        raise ChecksumMismatch(f"{path} has {size:,} bytes, expected {file.size:,}; {_AGAIN}")
    if file.lfs is not None:
        require_digest(str(path), digests.of_file(path), file.lfs.sha256, remedy=_AGAIN)
    elif file.blob_id is not None:
        content = path.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
        if blob.hexdigest() != file.blob_id:
            raise ChecksumMismatch(f"{path} is not git object {file.blob_id}; {_AGAIN}")


def _is_same(folder: Path, file: RepoSibling, digests: DigestCache) -> bool:
    if not (folder / file.rfilename).is_file():
        return False
    try:
        check_file(folder, file, digests)
    except ChecksumMismatch:
        return False
    return True


def _has_others(folder: Path, listing: HubListing) -> bool:
    """Of what a model is read from: files that its repository has dropped."""
    listed = {file.rfilename for file in listing.files}
    found = {path.relative_to(folder).as_posix() for path in folder.glob("[!.]*")}
    found |= {path.relative_to(folder).as_posix() for path in folder.glob("[!.]*/config.json")}
    found |= {path.relative_to(folder).as_posix() for path in folder.glob("[!.]*/*.jinja")}
    return not {name for name in found if _wanted(name)} <= listed


def _http_error() -> type[Exception]:
    """The base of what the hub's HTTP client raises; httpx or httpx2, by its version."""
    from huggingface_hub import errors

    return next(cls for cls in errors.HfHubHTTPError.__mro__ if cls.__name__ == "HTTPError")


@contextmanager
def hub_errors(source: HubSource) -> Iterator[None]:
    """What the hub's client raises, in our words; errors of ours and of the disk pass."""
    from huggingface_hub import errors

    try:
        yield
    except (
        _http_error(),
        errors.LocalEntryNotFoundError,
        errors.RevisionResolutionError,
        errors.XetDownloadError,
        ConnectionError,
    ) as error:
        raise SourceUnreachable(
            f"hf://{source.repository}@{source.revision} cannot be fetched: {str(error)[:500]} "
            "Check the name, the network and HF_TOKEN, or pass a local folder as the model"
        ) from error
