"""The house's own numbers: how many rooms, how small a file, how long a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.packaging.test_import_cycles import FILES, ROOT

FEWEST_LINES = 15
MOST_FUNCTION_LINES = 50
TRITON = ROOT / "kernels" / "triton"
"""A kernel is one loop over its tiles, and as long as that takes; so is its launch."""
MARKERS = ("__init__.py", "__main__.py")
"""Python asks for these: a package's marker, and what `python -m` starts."""


def rooms_of(package: str) -> list[str]:
    return sorted(
        path.name
        for path in (ROOT / package).iterdir()
        if (path.is_dir() and list(path.rglob("*.py"))) or path.suffix == ".py"
        if path.name != "__init__.py"
    )


def functions_in(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


def test_the_engine_has_at_most_eight_rooms() -> None:
    rooms = rooms_of("engine")
    assert "step" in rooms
    assert len(rooms) <= 8, rooms


def test_no_file_is_too_small_to_be_a_room_of_its_own() -> None:
    sizes = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in FILES.values()
        if path.name not in MARKERS
    }
    assert {path: size for path, size in sizes.items() if size < FEWEST_LINES} == {}


def test_a_package_marker_has_next_to_nothing_in_it() -> None:
    markers = [path for path in FILES.values() if path.name == "__init__.py"]
    assert len(markers) > 30
    long = [path for path in markers if len(path.read_text().splitlines()) >= FEWEST_LINES]
    assert long == []


def test_no_function_but_a_kernel_is_longer_than_fifty_lines() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}, {num_lines} lines"
        for path in FILES.values()
        if not path.is_relative_to(TRITON)
        for name, num_lines in functions_in(path)
        if num_lines > MOST_FUNCTION_LINES
    ]
    assert found == []


def test_the_glossary_is_in_order_and_says_each_word_once() -> None:
    lines = (ROOT / "docs" / "glossary.md").read_text().splitlines()
    words = [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:]
    assert len(words) > 40
    assert words == sorted(set(words), key=str.casefold)
    for page in (ROOT / "README.md", ROOT / "docs" / "architecture.md"):
        assert "glossary.md" in page.read_text()
