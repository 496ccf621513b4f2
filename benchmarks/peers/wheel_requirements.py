"""Prints what a wheel requires on this machine, without torch and its companions."""

import sys
import zipfile
from email.parser import HeaderParser

from pip._vendor.packaging.requirements import Requirement

TORCH = {"torch", "torchaudio", "torchvision", "torchcodec", "triton"}


def main() -> None:
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(wheel.read(name).decode())
    for line in metadata.get_all("Requires-Dist") or []:
        wanted = Requirement(line)
        applies = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
        if applies and wanted.name.lower() not in TORCH:
            wanted.marker = None
            print(wanted)


if __name__ == "__main__":
    main()
