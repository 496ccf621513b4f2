"""The house's own numbers: how many rooms, how small a file, how long a function."""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.packaging.test_import_cycles import FILES, PACKAGES, ROOT

FEWEST_LINES = 15
MOST_LINES = 300
MOST_FUNCTION_LINES = 50
TRITON = ROOT / "kernels" / "triton"
"""A kernel is one loop over its tiles, and as long as that takes; so is its launch."""
UNTESTED_ROOMS = {
    "kernels/reference": "what every kernel's own test compares with",
}
"""Rooms without a folder of tests, and why."""
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


def file_sizes() -> dict[str, int]:
    """Lines of every file but the markers."""
    return {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in FILES.values()
        if path.name not in MARKERS
    }


def test_no_file_is_too_small_to_be_a_room_of_its_own() -> None:
    assert {path: size for path, size in file_sizes().items() if size < FEWEST_LINES} == {}


def test_no_file_is_so_long_that_it_asks_to_be_two() -> None:
    assert {path: size for path, size in file_sizes().items() if size > MOST_LINES} == {}


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


def folders_below(top: Path) -> list[str]:
    """Those that hold Python files, here or further below, as paths within `top`."""
    files = (path.relative_to(top) for path in top.rglob("*.py"))
    return sorted({str(folder) for path in files for folder in path.parents[:-1]})


def test_every_folder_of_tests_has_the_name_of_the_room_that_it_tests() -> None:
    folders = [f for f in folders_below(ROOT / "tests") if f.split("/")[0] in PACKAGES]
    assert len(folders) > 40
    assert [folder for folder in folders if not list((ROOT / folder).glob("*.py"))] == []


def test_every_room_of_more_than_one_module_has_a_folder_of_tests() -> None:
    untested = {
        folder
        for folder in folders_below(ROOT)
        if folder.split("/")[0] in PACKAGES
        if len(set((ROOT / folder).glob("*.py")) - {ROOT / folder / "__init__.py"}) > 1
        if not list((ROOT / "tests" / folder).rglob("test_*.py"))
    }
    assert untested == set(UNTESTED_ROOMS)


def test_a_test_of_one_module_lies_in_the_folder_of_that_modules_room() -> None:
    """Of several modules of one name (a kernel and its reference): in one's, or above all."""
    rooms: defaultdict[str, list[str]] = defaultdict(list)
    for path in FILES.values():
        rooms[path.stem].append(str(path.parent.relative_to(ROOT)))
    for test in sorted((ROOT / "tests").rglob("test_*.py")):
        room = str(test.parent.relative_to(ROOT / "tests"))
        package = room.split("/")[0]
        theirs = [r for r in rooms[test.stem[5:]] if r.split("/")[0] == package]
        assert room in [*theirs, os.path.commonpath(theirs or [room])], f"{test}: of {theirs}"


def test_the_architecture_names_every_room() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    part = text.partition("## Rooms")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z_/]+)` \| (.*) \|$", part, re.MULTILINE))
    for container, words in rows.items():
        rooms = {path.parent.name for path in (ROOT / container).glob("*/__init__.py")}
        assert {f"`{room}`" for room in rooms} <= set(re.findall(r"`[a-z_]+`", words)), container
    assert set(rows) >= {package for package in PACKAGES if list((ROOT / package).glob("*/*.py"))}
