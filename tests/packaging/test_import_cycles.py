"""No module of ours needs itself, by way of others: not at import, not inside a function, and not
for the sake of its types alone."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = [
    "router",
    "prefill_worker",
    "decode_worker",
    "planner",
    "worker",
    "kvtransfer",
    "kernels",
    "ranks",
    "engine",
    "cluster",
    "cli",
]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
}


def imported_names(node: ast.AST) -> Iterator[str]:
    """Of everything below the node, also of what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module is not None:
            names = (f"{child.module}.{alias.name}" for alias in child.names)
            yield from (name if name in FILES else child.module for name in names)
        else:
            yield from imported_names(child)


def imports_of(module: str) -> set[str]:
    tree = ast.parse(FILES[module].read_text())
    return {name for name in imported_names(tree) if name in FILES and name != module}


def test_no_module_of_our_packages_imports_itself_by_way_of_others() -> None:
    assert len(FILES) > 400
    graphlib.TopologicalSorter({module: imports_of(module) for module in FILES}).prepare()
