"""Every test that docs/reliability.md names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py|\.\.\.)::(\w+)")
"""A file and a test in it; `...` is the file named before."""


def functions_of(path: Path) -> set[str]:
    """Of the module and of its classes."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_table_names_tests_that_exist() -> None:
    table = (ROOT / "docs" / "reliability.md").read_text()
    missing, file = [], ""
    named = NAMED.findall(table)
    for place, name in named:
        file = file if place == "..." else place
        path = ROOT / file
        if not path.exists() or name not in functions_of(path):
            missing.append(f"{file}::{name}")
    assert missing == []
    assert len(named) > 200
