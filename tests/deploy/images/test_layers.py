"""What is ours and changes often is no part of the layer with torch and CUDA's libraries."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.deploy.images.dockerfile import line_of, stages

_SITE = sysconfig.get_path("purelib")


def apart(stage: str) -> str:
    """The stage's own words for it: the last that run there."""
    run = stages()[stage].all("RUN")[-1]
    assert "top_level.txt" in run and "pip" not in run
    return run


def installed(root: Path) -> Path:
    """A tree as pip leaves it, under `root`; its site-packages."""
    site = root / _SITE.lstrip("/")
    info = site / "splitserve-0.1.0.dist-info"
    for folder in (site / "router/__pycache__", site / "kernels/cpu/built", site / "torch", info):
        folder.mkdir(parents=True)
    (info / "top_level.txt").write_text("kernels\nrouter\n")
    for name in ("router/main.py", "router/__pycache__/main.pyc", "kernels/cpu/built/a.so"):
        (site / name).touch()
    (site / "torch/torch.py").touch()
    programs = root / "opt/splitserve/bin"
    programs.mkdir(parents=True)
    for name in ("python", "splitserve", "ray"):
        (programs / name).touch()
    return site


def files(root: Path, below: str) -> set[str]:
    return {
        str(each.relative_to(root / below)) for each in (root / below).rglob("*") if each.is_file()
    }


@pytest.mark.parametrize("stage", ["worker-cpu-build", "worker-cuda-build"])
def test_ours_is_taken_out_of_what_was_installed(stage: str, tmp_path: Path) -> None:
    site = installed(tmp_path)
    words = apart(stage).replace(
        'print(sysconfig.get_path("purelib"))', f"print('{site}')".replace("'", '"')
    )
    words = words.replace("/own", f"{tmp_path}/own").replace(" /opt/", f" {tmp_path}/opt/")
    words = words.replace(f"{tmp_path}/own/opt", f"{tmp_path}/own{tmp_path}/opt")
    subprocess.run(["sh", "-ec", words], check=True)
    own = tmp_path / "own" / str(tmp_path).lstrip("/")
    here = site.relative_to(tmp_path)
    assert {each for each in files(tmp_path, str(here))} == {"torch/torch.py"}
    assert files(own, "opt/splitserve/bin") == {"splitserve"}
    assert files(tmp_path, "opt/splitserve/bin") == {"python", "ray"}
    assert files(own, str(here)) == {
        "router/main.py",
        "router/__pycache__/main.pyc",
        "kernels/cpu/built/a.so",
        "splitserve-0.1.0.dist-info/top_level.txt",
    }


@pytest.mark.parametrize("target", ["worker-cpu", "worker-cuda"])
def test_an_image_has_both_ours_last(target: str) -> None:
    copies = [rest for rest in line_of(target)[0].all("COPY")]
    assert copies == [
        f"--from={target}-build /opt/splitserve /opt/splitserve",
        f"--from={target}-build /own/opt/splitserve /opt/splitserve",
    ]
