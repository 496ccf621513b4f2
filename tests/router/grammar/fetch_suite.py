"""Unpacks the JSON-Schema suite into a folder: python -m tests.router.grammar.fetch_suite FOLDER

It lies in the source distribution of `jsonschema`, of the version that tests have installed. What
that builds with is fetched by pip to read its name, and installed nowhere.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

DRAFTS = ("draft7", "draft2020-12")
_MAX_BYTES = 4 << 20
"""Of one file; the largest has 60 kB."""


def main() -> int:
    """Leaves a folder for each draft, with one file for each keyword."""
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as fetched:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", fetched]
        wanted = f"jsonschema=={version('jsonschema')}"
        subprocess.run([*command, "--no-binary", "jsonschema", wanted], check=True)
        (source,) = Path(fetched).glob("*.tar.gz")
        with tarfile.open(source) as packed:
            for member in packed:
                _unpack(packed, member, folder)
    return 0


def _unpack(packed: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """`jsonschema-N/json/tests/DRAFT/KEYWORD.json`, and nothing below: that is optional."""
    path = Path(member.name)
    is_wanted = path.parts[1:3] == ("json", "tests") and len(path.parts) == 5
    if not is_wanted or path.parts[3] not in DRAFTS or path.suffix != ".json":
        return
    file = packed.extractfile(member)
    assert file is not None and member.size <= _MAX_BYTES, member.name
    place = folder / path.parts[3] / path.name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(file.read())


if __name__ == "__main__":
    sys.exit(main())
