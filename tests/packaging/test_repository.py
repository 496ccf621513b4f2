"""What every file of the repository keeps to."""

import re
import subprocess
import tomllib
import warnings

import pytest

from tests.packaging.test_import_cycles import PACKAGES, ROOT

FORBIDDEN = re.compile(r"\b(pickle|cloudpickle|dill)\b|torch\.load\(|(?<!\.)\beval\(|shell=True")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py|\.\.\.)(?:::(\w+))?`")
"""In the tables of findings and of attacks; the dots stand for the file that was named before."""


def test_a_driver_that_is_too_old_for_torch_ends_no_test_and_other_warnings_do():
    says = "CUDA initialization: {} (found version 12020). Please update your GPU driver"
    warnings.warn(says.format("The NVIDIA driver on your system is too old"), stacklevel=1)
    with pytest.raises(UserWarning):
        warnings.warn(says.format("Unexpected error from cudaGetDeviceCount()"), stacklevel=1)


def test_no_unsafe_reader_stands_in_the_code():
    found = {
        f"{path.relative_to(ROOT)}:{number}": line
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if not is_prose(line) and FORBIDDEN.search(line)
    }
    assert found == {}


def is_prose(line):
    """Comments and docstring lines may say the word."""
    stripped = line.strip()
    return stripped.startswith(("#", '"""', "- ")) or not re.search(r"[=(\[]|import", stripped)


def test_the_stubs_are_those_of_the_protos(tmp_path):
    import sys

    protos = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "protos").glob("*.proto"))
    out = [f"--{kind}={tmp_path}" for kind in ("python_out", "grpc_python_out", "pyi_out")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", *out, *protos]
    subprocess.run(command, cwd=ROOT, check=True)
    for made in sorted((tmp_path / "protos").iterdir()):
        assert made.read_text() == (ROOT / "protos" / made.name).read_text(), "run make proto"


def test_the_variable_of_the_home_is_read_in_one_place():
    reads = re.compile(r"(environ|getenv).*SPLITSERVE_HOME")
    found = [path.relative_to(ROOT) for path in SOURCES if reads.search(path.read_text())]
    assert [str(path) for path in found] == ["cluster/home.py"]


def test_every_package_and_extra_that_is_promised_is_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tool = project["tool"]
    packages = {name.rstrip("*") for name in tool["setuptools"]["packages"]["find"]["include"]}
    packages |= set(tool["ruff"]["lint"]["isort"]["known-first-party"])
    assert {name for name in packages if not (ROOT / name).is_dir()} == set()
    offers = "".join((ROOT / name).read_text() for name in ("Makefile", "README.md"))
    extras = project["project"]["optional-dependencies"]
    offered = set(re.findall(r"[\w-]+", offers))
    assert set(extras) - offered == set()


@pytest.mark.parametrize(("page", "at_least"), [("reliability.md", 100), ("security.md", 30)])
def test_every_test_that_a_table_names_is_there(page, at_least):
    named = TEST.findall((ROOT / "docs" / page).read_text())
    assert len(named) > at_least
    file, missing = "", []
    for path, name in named:
        file = file if path == "..." else path
        source = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
        if not source or (name and f"def {name}(" not in source):
            missing.append(f"{file}::{name}")
    assert missing == []
