"""What is installed is what the tests have run with, or near it."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cluster.extras import EXTRAS, how_to_install
from tests.packaging.test_import_cycles import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALL = re.compile(r"pip install [^`\n]*(?:\.|'\.\[\w+\]')`")
"""Of this project; as the README has it."""
TEXTS = (".md", ".py", ".sh", ".tpl", ".txt", ".yaml")


def ranges() -> dict[str, SpecifierSet]:
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    wanted = [Requirement(line) for line in sum(extras.values(), PROJECT["dependencies"])]
    return {canonicalize_name(each.name): each.specifier for each in wanted}


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    rows = (line.partition("==") for line in lines)
    return {canonicalize_name(name): Version(version) for name, _, version in rows}


def test_every_range_has_its_pin_inside() -> None:
    pinned = pins()
    assert {name for name, range_ in ranges().items() if pinned[name] not in range_} == set()


def test_a_package_whose_private_class_is_ours_may_be_one_minor_version_newer_at_most() -> None:
    """router/api/http/protocol.py builds on uvicorn's HttpToolsProtocol, its flow and its cycle."""
    pinned, allowed = pins()["uvicorn"], ranges()["uvicorn"]
    near, far = (f"{pinned.major}.{pinned.minor + more}.0" for more in (1, 2))
    assert near in allowed and far not in allowed
    assert f"{pinned.major}.{pinned.minor - 1}.9" not in allowed


def test_every_install_that_the_readme_tells_of_keeps_to_the_pins() -> None:
    told = INSTALL.findall((ROOT / "README.md").read_text())
    assert len(told) >= 2
    assert [line for line in told if " -c constraints.txt " not in line] == []


BARE_NAME = re.compile(r"pip3? install [^`,\n]*splitserve\b(?:\[|'|\"|`|$)")
"""As an index would be asked for it."""


def test_nobody_is_told_to_ask_an_index_for_a_name_that_nobody_of_ours_publishes() -> None:
    """Such a name may be taken by a stranger, on machines that hold a kubeconfig."""
    told = [path for path in ROOT.glob("*") if path.is_file() and path.suffix in (".md", "")]
    for folder in ROOT.iterdir():
        if folder.is_dir() and not folder.name.startswith("."):
            told += [path for path in folder.rglob("*") if path.suffix in TEXTS]
    assert len(told) > 500
    wrong = [str(path) for path in told if BARE_NAME.search(path.read_text(errors="replace"))]
    assert wrong == [] and BARE_NAME.search("pip install" + " 'splitserve[worker]'")


def test_every_extra_that_somebody_is_told_of_is_one() -> None:
    extras = set(PROJECT["optional-dependencies"])
    assert {*EXTRAS.values(), "worker", "ray", "kubernetes"} <= extras
    assert INSTALL.search(f"`{how_to_install('ray').partition(',')[0]}`")
