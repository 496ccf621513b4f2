"""UCX is set up for the machine: its cards, torch's build, and how torch allocates."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.errors import ConfigError
from kvtransfer.hardware import has_nvidia_card, has_rdma_device
from kvtransfer.nixl_library import check_allocator, machine_settings, ucx_settings


def pci_bus(folder: Path, **devices: tuple[str, str]) -> Path:
    """Devices by name: (vendor, class), as sysfs writes them."""
    for name, (vendor, kind) in devices.items():
        (folder / name).mkdir()
        (folder / name / "vendor").write_text(f"{vendor}\n")
        (folder / name / "class").write_text(f"{kind}\n")
    return folder


@pytest.mark.parametrize(("kind", "is_card"), [("0x030000", True), ("0x030200", True)])
def test_an_nvidia_card_is_found_on_the_pci_bus(tmp_path: Path, kind: str, is_card: bool) -> None:
    bus = pci_bus(tmp_path, bridge=("0x8086", "0x060000"), card=("0x10de", kind))
    assert has_nvidia_card(bus) is is_card


def test_sound_of_nvidia_and_cards_of_others_are_no_nvidia_cards(tmp_path: Path) -> None:
    bus = pci_bus(tmp_path, sound=("0x10de", "0x040300"), other=("0x1002", "0x030000"))
    (bus / "odd").mkdir()
    assert not has_nvidia_card(bus)
    assert not has_nvidia_card(tmp_path / "nothing")


def test_with_a_card_and_a_torch_for_cpus_no_transport_is_excluded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """NIXL 1.5.1 does not start with a UCX_TLS without CUDA when it finds a card."""
    bus = pci_bus(tmp_path, card=("0x10de", "0x030200"))
    monkeypatch.delenv("UCX_TLS", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("kvtransfer.nixl_library.has_nvidia_card", lambda: has_nvidia_card(bus))
    assert "UCX_TLS" not in ucx_settings()
    assert "UCX_CUDA_IPC_ENABLE_GET_ZCOPY" not in ucx_settings()


def test_without_a_card_nothing_is_probed_for() -> None:
    assert machine_settings(has_cuda=False, has_card=False)["UCX_TLS"] == "tcp,self,sm"


def test_with_cuda_reads_go_directly_also_where_there_is_no_nvlink() -> None:
    settings = machine_settings(has_cuda=True, has_card=True)
    assert settings["UCX_CUDA_IPC_ENABLE_GET_ZCOPY"] == "y"
    assert "UCX_TLS" not in settings


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")
    assert "UCX_TLS" not in ucx_settings()


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_expandable_segments_are_refused_for_memory_of_a_gpu_only(name: str) -> None:
    environment = {name: "max_split_size_mb:64,expandable_segments:True"}
    check_allocator("DRAM", environment)
    check_allocator("VRAM", {name: "expandable_segments:False"})
    with pytest.raises(ConfigError, match=f"{name} is .*; remove expandable_segments"):
        check_allocator("VRAM", environment)


def test_where_there_is_rdma_ucx_chooses_the_transports(tmp_path: Path) -> None:
    assert not has_rdma_device(tmp_path) and not has_rdma_device(tmp_path / "none")
    (tmp_path / "mlx5_0").mkdir()
    assert has_rdma_device(tmp_path)
    settings = machine_settings(has_cuda=False, has_card=False, has_rdma=True)
    assert "UCX_TLS" not in settings
