"""What `make install` does, and does again; a Python that only writes down what it is asked."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CUDA_12 = "https://download.pytorch.org/whl/cu126"
PYTHON = """#!/bin/sh
case "$*" in
*print*) echo {minor};;
*" venv "*)
    for folder; do :; done
    case "$*" in *--clear*) rm -rf "$folder";; esac
    mkdir -p "$folder/bin" "$folder/lib/python{minor}"
    touch "$folder/pyvenv.cfg"
    cp "{python}" "$folder/bin/python";;
*"import pip"*) test ! -e "{no_pip}";;
*ensurepip*) rm "{no_pip}";;
*" pip "*)
    echo "{minor} $*" >> "{log}"
    test ! -e "{no_network}";;
esac
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder for an environment, and the Pythons that can make one."""

    folder: Path
    make: str

    @property
    def environment(self) -> Path:
        return self.folder / "venv"

    @property
    def no_network(self) -> Path:
        """While this is there, pip fails."""
        return self.folder / "no-network"

    @property
    def no_pip(self) -> Path:
        """While this is there, no Python has a pip."""
        return self.folder / "no-pip"

    def add_python(self, minor: str, name: str) -> None:
        python = self.folder / name
        paths = {"no_network": self.no_network, "no_pip": self.no_pip}
        log = self.folder / "log"
        python.write_text(PYTHON.format(minor=minor, python=python, log=log, **paths))
        python.chmod(0o755)

    def installs(self, *words: str, target: str = "install", fails: bool = False) -> list[str]:
        """What pip is given by one `make`, behind the version of its Python."""
        log = self.folder / "log"
        log.write_text("")
        settings = [f"VENV={self.environment}", f"ROUTER_VENV={self.folder / 'router'}"]
        done = subprocess.run(
            [self.make, target, *settings, *words],
            cwd=ROOT,
            env={"PATH": f"{self.folder}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return [line.replace(" -m pip install -q", "") for line in log.read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make")
    found = Place(tmp_path, make)
    found.add_python("3.11", "python3")
    found.add_python("3.12", "python3.12")
    return found


def test_what_is_installed_is_not_installed_again(place: Place) -> None:
    assert place.installs() == [
        "3.11 -c constraints.txt torch==2.13.0",
        "3.11 -c constraints.txt -e .[worker,test,dev,bench]",
    ]
    assert place.installs() == []


def test_torch_of_another_index_takes_the_place_of_the_one_that_is_there(place: Place) -> None:
    place.installs()
    mark = place.environment / "lib" / "nixl_cu13"
    mark.touch()
    assert place.installs("WORKER=worker-cu12", f"TORCH_INDEX={CUDA_12}") == [
        f"3.11 --no-deps --index-url {CUDA_12} torch==2.13.0",
        "3.11 -c constraints.txt -e .[worker-cu12,test,dev,bench]",
    ]
    assert not mark.exists()


def test_what_was_chosen_holds_until_something_else_is(place: Place) -> None:
    chosen = ("WORKER=worker-cu12", f"TORCH_INDEX={CUDA_12}")
    place.installs(*chosen)
    assert place.installs() == place.installs(*chosen) == []
    torch, rest = place.installs("WORKER=worker", "TORCH_INDEX=")
    assert "--index-url" not in torch
    assert "[worker," in rest


def test_another_python_makes_the_environment_anew_and_is_kept(place: Place) -> None:
    place.installs()
    assert {line[:4] for line in place.installs("PYTHON=python3.12")} == {"3.12"}
    assert place.installs() == []
    assert {line[:4] for line in place.installs("PYTHON=python3")} == {"3.11"}


def test_an_install_that_was_broken_off_goes_on_with_what_was_chosen(place: Place) -> None:
    place.installs()
    place.no_network.touch()
    place.installs(f"TORCH_INDEX={CUDA_12}", fails=True)
    place.no_network.unlink()
    torch, _ = place.installs()
    assert CUDA_12 in torch


def test_an_environment_that_somebody_else_made_is_kept(place: Place) -> None:
    subprocess.run([place.folder / "python3.12", "-m", "venv", place.environment], check=True)
    mark = place.environment / "theirs"
    mark.touch()
    assert {line[:4] for line in place.installs()} == {"3.12"}
    assert mark.exists()


def test_an_environment_without_pip_is_given_one_and_kept(place: Place) -> None:
    subprocess.run([place.folder / "python3.12", "-m", "venv", place.environment], check=True)
    mark = place.environment / "theirs"
    mark.touch()
    place.no_pip.touch()
    assert {line[:4] for line in place.installs()} == {"3.12"}
    assert mark.exists() and not place.no_pip.exists()


def test_the_router_s_environment_follows_the_python(place: Place) -> None:
    router = str(place.folder / "router" / ".installed")
    assert place.installs(target=router)[-1] == "3.11 -c constraints.txt -e .[kubernetes]"
    assert place.installs(target=router) == []
    assert place.installs("PYTHON=python3.12", target=router)[-1] == (
        "3.12 -c constraints.txt -e .[kubernetes]"
    )
