"""The page's files: small, of this router alone, and in whatever is installed."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch

from router.page.files import FOLDER, page_files
from tests.packaging.test_import_cycles import ROOT

IMPORT = re.compile(r'from "\./([a-z]+\.js)"')
MOST_LINES = 200
MOST_BYTES = 64 * 1024


def sources(suffix: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(FOLDER.glob(f"*{suffix}"))}


def test_wheels_and_images_hold_every_file() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        name = str(path.relative_to(FOLDER.parent))
        assert any(fnmatch(name, pattern) for pattern in data["router.page"]), name


def test_every_file_is_served_and_every_module_that_is_imported_is_there() -> None:
    served = page_files()
    assert set(served) == {"/", *(f"/{path.name}" for path in FOLDER.iterdir())}
    modules = sources(".js")
    imported = {name for text in modules.values() for name in IMPORT.findall(text)}
    assert imported | {"page.js"} == set(modules)


def test_nothing_comes_from_another_host_and_no_text_becomes_markup_or_code() -> None:
    for name, text in (sources(".js") | sources(".css") | sources(".html")).items():
        found = re.findall(r"https?://[^\s\"']+", text)
        assert set(found) <= {"http://www.w3.org/2000/svg"}, name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text), name
        assert not re.search(r"\beval\(|new Function|localStorage|sessionStorage", text), name


def test_files_are_small() -> None:
    texts = sources(".js") | sources(".css") | sources(".html")
    assert {
        n: len(t.splitlines()) for n, t in texts.items() if len(t.splitlines()) > MOST_LINES
    } == {}
    assert sum(len(file.body) for file in page_files().values()) < MOST_BYTES
