"""A build is told what pip is told here, and finds it where it is told."""

from __future__ import annotations

from pathlib import Path

from tests.deploy.images.pip_settings import PipSettings

_LISTED = """:env:.cert='/etc/ssl/own.pem'
:env:.disable-pip-version-check='1'
global.cert='/etc/ssl/other.pem'
global.constraint='/etc/pins.txt'
global.extra-index-url='file://{folder}/mirror/simple https://more.example/simple'
global.find-links='{folder}/wheels'
"""


def settings(folder: Path) -> PipSettings:
    for name in ("mirror/simple", "wheels"):
        (folder / name).mkdir(parents=True)
    return PipSettings.read(_LISTED.format(folder=folder))


def test_what_the_environment_says_wins_and_pins_of_the_machine_are_left_out(
    tmp_path: Path,
) -> None:
    found = settings(tmp_path)
    options = found.secrets(tmp_path)
    assert options[:2] == ["--secret", "id=ca.crt,src=/etc/ssl/own.pem"]
    assert options[2:] == ["--secret", f"id=pip.conf,src={tmp_path}/pip.conf"]
    lines = (tmp_path / "pip.conf").read_text().splitlines()
    assert lines[0] == "[global]"
    assert "cert = /run/secrets/ca.crt" in lines
    assert f"find-links = {tmp_path}/wheels" in lines
    assert not [line for line in lines if "constraint" in line or "version-check" in line]


def test_folders_of_wheels_are_shown_to_the_build_and_have_its_torch(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert set(found.folders) == {tmp_path / "mirror", tmp_path / "wheels"}
    assert found.torch_index == "https://pypi.org/simple"


def test_where_pip_is_told_nothing_a_build_is_as_everybody_s(tmp_path: Path) -> None:
    found = PipSettings.read("")
    assert (found.torch_index, found.folders) == (None, [])
    assert found.secrets(tmp_path)[0::2] == ["--secret"]
