"""What is plugged into this machine, whether or not our libraries can use it."""

from __future__ import annotations

from pathlib import Path

PCI_DEVICES = Path("/sys/bus/pci/devices")
_RDMA_DEVICES = Path("/sys/class/infiniband")
_NVIDIA = 0x10DE
_DISPLAY, _ACCELERATOR = 0x0300, 0x0302  # class codes without the programming interface


def has_nvidia_card(devices: Path = PCI_DEVICES) -> bool:
    """True when the PCI bus has one: NIXL looks there, too, without asking torch or the driver."""
    return any(_is_nvidia_card(device) for device in devices.glob("[!.]*"))


def _is_nvidia_card(device: Path) -> bool:
    try:
        vendor = int((device / "vendor").read_text(), 16)
        kind = int((device / "class").read_text(), 16) >> 8
    except (OSError, ValueError):
        return False
    return vendor == _NVIDIA and kind in (_DISPLAY, _ACCELERATOR)


def has_rdma_device(devices: Path = _RDMA_DEVICES) -> bool:
    """Whether the kernel knows an InfiniBand or RoCE device."""
    return devices.is_dir() and any(devices.iterdir())
