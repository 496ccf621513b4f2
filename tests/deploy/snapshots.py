"""The chart's defaults as real helm renders them, a file for each template. To write them anew:

python -m tests.deploy.snapshots
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

from tests.deploy.chart import helm

FOLDER = Path(__file__).parent / "snapshots"
_SOURCE = re.compile(r"^# Source: splitserve/templates/(\S+)$", re.MULTILINE)
_MADE = re.compile(r"^(  (?:join-token|key|keys\.json): )\S+$", re.MULTILINE)
"""Secrets that each rendering makes anew."""


def snapshots() -> dict[str, str]:
    """By the name of their file. AssertionError with what helm says."""
    done = helm("template", "demo")
    assert done.returncode == 0, done.stderr
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for document in re.split(r"^---$", done.stdout, flags=re.MULTILINE):
        if (source := _SOURCE.search(document)) is not None:
            parts[source[1].replace("/", "-")].append(_plain(document))
    return {name: "---\n".join(documents) for name, documents in parts.items()}


def stored() -> dict[str, str]:
    """The same, as they were written last."""
    return {path.name: path.read_text() for path in FOLDER.glob("*.yaml")}


def _plain(document: str) -> str:
    """Without what changes by itself, and blank lines."""
    made = _MADE.sub(r"\1(made anew)", document)
    return "".join(f"{line.rstrip()}\n" for line in made.splitlines() if line.strip())


def main() -> int:
    """Writes all of them, and removes those of templates that make nothing any more."""
    FOLDER.mkdir(exist_ok=True)
    found = snapshots()
    for name in stored().keys() - found.keys():
        (FOLDER / name).unlink()
    for name, text in found.items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
