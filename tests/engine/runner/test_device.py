"""A GPU that torch cannot use is told and not passed over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from cluster.errors import ConfigError
from cluster.supervisor.devices import NvidiaHost
from engine.runner.device import keep_triton_kernels, resolve_device

OLD = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
NEW = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
    "GCC version:  gcc version 13.3.0\n"
)


def host_with(folder: Path, driver: str) -> NvidiaHost:
    (folder / "nvidia0").touch()
    (folder / "version").write_text(driver)
    return NvidiaHost(folder, folder / "version")


@pytest.fixture(autouse=True)
def torch_finds_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_a_driver_that_is_too_old_is_named_with_the_one_that_is_needed(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigError, match=r"CUDA 13\.0.* 580 or later; this one is 535\.104\.05"):
        resolve_device(name, host_with(tmp_path, OLD))


def test_who_is_refused_is_told_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"update the driver.*--device cpu") as refused:
        resolve_device("auto", host_with(tmp_path, OLD))
    assert refused.value.param == "device"
    assert resolve_device("cpu", host_with(tmp_path, OLD)).type == "cpu"


def test_a_torch_without_cuda_and_a_fault_behind_a_new_driver_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = host_with(tmp_path, NEW)
    with pytest.raises(ConfigError, match=r"driver 580\.65\.06; see what nvidia-smi says"):
        resolve_device("auto", host)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ConfigError, match="built without CUDA"):
        resolve_device("auto", host)


def test_where_there_is_no_gpu_or_it_is_hidden_auto_is_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve_device("auto", NvidiaHost(tmp_path)).type == "cpu"
    with pytest.raises(ConfigError, match="this machine has none"):
        resolve_device("cuda", NvidiaHost(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert resolve_device("auto", host_with(tmp_path, OLD)).type == "cpu"


def test_a_gpu_that_can_be_used_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto").type == "cuda"
    assert resolve_device("cpu").type == "cpu"
    with pytest.raises(ConfigError, match="'tpu'; choose auto, cpu or cuda"):
        resolve_device("tpu")


def test_a_folder_for_compiled_kernels_that_cannot_be_made_is_told_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/triton cannot be made .* set SPLITSERVE_HOME"):
        keep_triton_kernels(tmp_path / "file" / "triton")


def test_a_folder_for_compiled_kernels_that_the_user_chose_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "chosen"))
    keep_triton_kernels(tmp_path / "other")
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "chosen")
    assert (tmp_path / "chosen").is_dir()
