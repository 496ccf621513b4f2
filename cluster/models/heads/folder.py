"""A folder as a card of heads."""

from __future__ import annotations

from pathlib import Path

from cluster.models.files.json_file import read_json_object
from cluster.models.files.weights_digest import DigestCache
from cluster.models.heads.card import HeadsCard
from cluster.models.heads.eagle3 import heads_of_eagle3, is_eagle3
from cluster.models.hf.folder import weight_files_of


def heads_of_folder(
    folder: Path, *, name: str, source: str, digests: DigestCache
) -> HeadsCard | None:
    """None: it holds something else. Raises as `heads_of_eagle3`, and UnsupportedModel where its
    weights are no safetensors."""
    path = folder / "config.json"
    if not path.is_file():
        return None
    values = read_json_object(path)
    if not is_eagle3(values):
        return None
    architecture, config = heads_of_eagle3(values, str(path))
    files = weight_files_of(folder)
    return HeadsCard(
        name=name,
        source=source,
        weight_files=files,
        architecture=architecture,
        config=config,
        weights_digest=digests.of((*files, path)),
        weight_bytes=sum(file.stat().st_size for file in files),
    )
