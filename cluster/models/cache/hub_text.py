"""Fetches the text side of a hub's model for a process that runs no weights: a router.

    config, tokenizer, templates, generation config -> files
    weights -> .digests: names, sizes and SHA-256, by the hub's word for its large files

Whoever fetches the weights checks them against the same words, so both have one digest.
"""

from __future__ import annotations

from pathlib import Path

from cluster.models.cache.hub_commits import COMPLETE
from cluster.models.cache.hub_download import (
    HubListing,
    check_fetched,
    download,
    hub_errors,
    hub_listing,
    is_weights,
)
from cluster.models.cache.source import HubSource
from cluster.models.files.disk import disk_errors, landing
from cluster.models.files.manifest import StatedFile, write_manifest
from cluster.models.files.progress import ByteProgress
from cluster.models.files.weights_digest import DigestCache


def fetch_hub_text(
    source: HubSource, folder: Path, digests: DigestCache, progress: ByteProgress
) -> bool:
    """False, and nothing is fetched, where the hub does not state every weight file's digest. The
    caller holds a lock of this folder's own. Raises as `fetch_hub_model`."""
    with hub_errors(source), disk_errors(folder):
        listing = hub_listing(source)
        stated = _stated_weights(listing)
        if stated is None:
            return False
        files = [file for file in listing.files if not is_weights(file)]
        download(source, HubListing(listing.commit, files), folder, progress)
        check_fetched(folder, files, digests)
        write_manifest(folder, stated)
        with landing(folder / COMPLETE) as mark:
            mark.write(listing.commit.encode())
    return True


def _stated_weights(listing: HubListing) -> dict[str, StatedFile] | None:
    """By name; None where one is no large file of the hub's."""
    stated = {}
    for file in listing.files:
        if is_weights(file):
            if file.lfs is None:
                return None
            stated[file.rfilename] = StatedFile(size_bytes=file.lfs.size, sha256=file.lfs.sha256)
    return stated
