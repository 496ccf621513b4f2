"""Models by name: found in the cache or fetched into it, once.

    <home>/models/smollm2/*.gguf              aliases
    <home>/models/hub/<owner>--<name>/<rev>/  Hugging Face folders, with .complete when whole;
                                              of one that moves see hub_commits.py
    <home>/models/text/<owner>--<name>/<rev>/ of those, what a router needs: no weights
    <home>/models/digests/*.json              SHA-256 of weight files
    .digests                                  the same, beside what was fetched
    <home>/models/locks/                      one per model

<home>: see cluster/home.py. What is cached is used without a network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ChecksumMismatch, UnknownModel
from cluster.home import default_home
from cluster.models.cache.hub_commits import COMPLETE, current_folder
from cluster.models.cache.hub_download import fetch_hub_model
from cluster.models.cache.hub_text import fetch_hub_text
from cluster.models.cache.lock import cache_lock
from cluster.models.cache.source import (
    ALIASES,
    HUB_PREFIX,
    AliasSource,
    FolderSource,
    GgufSource,
    HubSource,
    Source,
    parse_source,
)
from cluster.models.cache.wheel_download import fetch_wheel_model
from cluster.models.card import ModelCard
from cluster.models.files.disk import disk_errors, require_digest
from cluster.models.files.manifest import read_manifest, stated_file, write_manifest
from cluster.models.files.progress import ByteProgress, silent
from cluster.models.files.weights_digest import DigestCache
from cluster.models.gguf.card import card_of_gguf
from cluster.models.heads.card import HeadsCard
from cluster.models.heads.folder import heads_of_folder
from cluster.models.hf.card import card_of_folder


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A line of `models list`."""

    source: str
    cached_path: Path | None
    """None: known by name, not fetched yet."""
    num_bytes: int
    """On disk; of an alias that is not fetched, what it will take."""


class ModelStore:
    """Safe to use from several processes at once; every method may raise a ModelError."""

    def __init__(self, home: Path | None = None) -> None:
        self.root = (home or default_home()) / "models"

    def list_models(self) -> tuple[ModelEntry, ...]:
        """Aliases first, then what was fetched from the hub."""
        return (*map(self._alias_entry, ALIASES), *self._hub_entries())

    def resolve(self, source: str, progress: ByteProgress = silent) -> ModelCard:
        """The card, fetching the model when it is not in the cache."""
        place = parse_source(source)
        if self._cached(place) is None:
            return self.pull(source, progress)
        return self._card(place, source, progress)

    def pull(self, source: str, progress: ByteProgress = silent) -> ModelCard:
        """Fetches (or repairs) the model; local files are only checked."""
        place = parse_source(source)
        if isinstance(place, AliasSource | HubSource):
            with disk_errors(self.root), cache_lock(self._lock_path(place), progress):
                self._fetch(place, progress)
        return self._card(place, source, progress)

    def resolve_text(self, source: str, progress: ByteProgress = silent) -> ModelCard:
        """For who runs no weights: as `resolve`, with the same digests, but of a hub's model that
        is not here only the text side is fetched. Such a card has no weight files."""
        place = parse_source(source)
        if not isinstance(place, HubSource) or self._cached(place) is not None:
            return self.resolve(source, progress)
        folder, digests = self._text_path(place), self._digests(progress)
        if not _has_text(folder):
            with disk_errors(self.root), cache_lock(self._text_lock_path(place), progress):
                there = _has_text(folder) or fetch_hub_text(place, folder, digests, progress)
            if not there:
                return self.resolve(source, progress)
        stated = read_manifest(folder)
        return card_of_folder(
            folder, name=place.name, source=source, digests=digests, stated=stated
        )

    def resolve_heads(self, source: str, progress: ByteProgress = silent) -> HeadsCard | None:
        """As `resolve`, of a checkpoint that holds a head beside a model; None: it holds something
        else."""
        place = parse_source(source)
        if not isinstance(place, FolderSource | HubSource):
            return None
        if isinstance(place, HubSource) and self._cached(place) is None:
            with disk_errors(self.root), cache_lock(self._lock_path(place), progress):
                self._fetch(place, progress)
        path = self._path(place)
        name = place.name if isinstance(place, HubSource) else path.name
        return heads_of_folder(path, name=name, source=source, digests=self._digests(progress))

    def show(self, source: str) -> ModelCard:
        """The facts of a model that is here; fetches nothing. Raises UnknownModel otherwise."""
        place = parse_source(source)
        if self._cached(place) is None:
            raise UnknownModel(
                f"{source} is not in the cache {self.root}; fetch it with "
                f"`splitserve models pull {source}`",
                param="model",
            )
        return self._card(place, source, silent)

    def _fetch(self, place: AliasSource | HubSource, progress: ByteProgress) -> None:
        if isinstance(place, HubSource):
            fetch_hub_model(place, self._revision(place), self._digests(progress), progress)
            return
        path = self._path(place)
        if not self._is_whole(place):
            fetch_wheel_model(place.model, path, progress)
        write_manifest(path.parent, {path.name: stated_file(path, self._digests(progress).of_file)})

    def _is_whole(self, place: AliasSource) -> bool:
        """A second process that waited for the lock finds the first one's file."""
        path = self._path(place)
        return path.is_file() and self._digests(silent).of_file(path) == place.model.gguf_sha256

    def _card(self, place: Source, source: str, progress: ByteProgress) -> ModelCard:
        path, digests = self._path(place), self._digests(progress)
        if isinstance(place, FolderSource | HubSource):
            name = place.name if isinstance(place, HubSource) else path.name
            return card_of_folder(path, name=name, source=source, digests=digests)
        if isinstance(place, AliasSource):
            self._check_alias(place, path, digests)
            return card_of_gguf(path, name=place.model.alias, source=source, digests=digests)
        return card_of_gguf(path, name=path.stem, source=source, digests=digests)

    def _check_alias(self, place: AliasSource, path: Path, digests: DigestCache) -> None:
        """The size first, so that a truncated file is named as one; then the content."""
        size = path.stat().st_size
        remedy = f"repair it with `splitserve models pull {place.model.alias}`"
        if size != place.model.gguf_bytes:
            raise ChecksumMismatch(
                f"{path} has {size:,} bytes, expected {place.model.gguf_bytes:,}; {remedy}"
            )
        require_digest(str(path), digests.of_file(path), place.model.gguf_sha256, remedy=remedy)

    def _cached(self, place: Source) -> Path | None:
        path = self._path(place)
        whole = (path / COMPLETE).is_file() if isinstance(place, HubSource) else path.exists()
        return path if whole else None

    def _path(self, place: Source) -> Path:
        match place:
            case AliasSource(model):
                return self.root / model.alias / model.file_name
            case HubSource():
                return current_folder(self._revision(place))
            case FolderSource(path) | GgufSource(path):
                return path

    def _revision(self, place: HubSource) -> Path:
        return self.root / "hub" / f"{place.owner}--{place.name}" / place.revision

    def _lock_path(self, place: AliasSource | HubSource) -> Path:
        if isinstance(place, AliasSource):
            return self.root / "locks" / f"{place.model.alias}.lock"
        return self.root / "locks" / f"{place.owner}--{place.name}@{place.revision}.lock"

    def _text_path(self, place: HubSource) -> Path:
        return self.root / "text" / f"{place.owner}--{place.name}" / place.revision

    def _text_lock_path(self, place: HubSource) -> Path:
        """Its own: who wants the text does not wait for who fetches the weights."""
        return self.root / "locks" / f"{place.owner}--{place.name}@{place.revision}.text.lock"

    def _digests(self, progress: ByteProgress) -> DigestCache:
        return DigestCache(self.root / "digests", progress)

    def _alias_entry(self, alias: str) -> ModelEntry:
        path = self._cached(AliasSource(ALIASES[alias]))
        size = ALIASES[alias].gguf_bytes if path is None else path.stat().st_size
        return ModelEntry(alias, path, size)

    def _hub_entries(self) -> list[ModelEntry]:
        revisions = sorted((self.root / "hub").glob("*/*"))
        return [_hub_entry(each) for each in revisions if _is_complete(each)]


def _has_text(folder: Path) -> bool:
    return (folder / COMPLETE).is_file() and bool(read_manifest(folder))


def _is_complete(revision: Path) -> bool:
    return (current_folder(revision) / COMPLETE).is_file()


def _hub_entry(revision: Path) -> ModelEntry:
    owner, _, name = revision.parent.name.partition("--")
    folder = current_folder(revision)
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    return ModelEntry(f"{HUB_PREFIX}{owner}/{name}@{revision.name}", folder, size)
