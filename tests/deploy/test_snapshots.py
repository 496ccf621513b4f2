"""What the chart installs by default changes where somebody has seen it change."""

from __future__ import annotations

import difflib

from tests.deploy.snapshots import snapshots, stored


def test_the_rendered_defaults_are_those_that_were_seen() -> None:
    found, seen = snapshots(), stored()
    changes = [
        line
        for name in sorted(found.keys() | seen.keys())
        for line in difflib.unified_diff(
            seen.get(name, "").splitlines(),
            found.get(name, "").splitlines(),
            f"seen/{name}",
            f"now/{name}",
            lineterm="",
        )
    ]
    assert not changes, "\n".join(["python -m tests.deploy.snapshots writes them anew", *changes])


def test_no_secret_of_a_rendering_is_kept() -> None:
    assert snapshots() == snapshots()
