"""Which link UCX really chose: read from its own protocol report, never guessed.

UCX prints, at the first read over a connection, a table of the protocols it selected; asking for
just that table (UCX_PROTO_INFO) and sending UCX's log to memory (UCX_LOG_FILE) makes it readable:

    | D42 intra-node cfg#1                                        |
    | remote memory read by ucp_get*(multi) into host memory from host |
    | Range  | Description        | Config                        |
    | 0..inf | zero-copy          | cma/memory                    |

UCX opens its log file once per process, so there is one UcxLog per process. Warnings and errors of
UCX, which would have gone to the terminal, are passed on to our log.
"""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass, field

from cluster.logs import get_logger

READ_PROTOCOLS = "*read by ucp_get*"
MAX_TABLES = 16
_SHARED_MEMORY = ("cma", "knem", "xpmem", "posix", "sysv")
_log = get_logger("kvtransfer.ucx")


@dataclass(slots=True)
class ProtocolTable:
    """One table of the report: the protocol by message size, for one operation."""

    endpoint: str
    operation: str = ""
    rows: list[tuple[str, str]] = field(default_factory=list)
    """(size range such as "0..16515", configuration such as "cma/memory")."""

    @property
    def is_remote(self) -> bool:
        """False for the connection of an agent to itself."""
        return " self cfg" not in self.endpoint

    def link_for(self, num_bytes: int) -> str | None:
        """The configuration of reads of this size."""
        for sizes, link in self.rows:
            first, _, last = sizes.partition("..")
            if int(first) <= num_bytes and (last == "inf" or num_bytes <= int(last or first)):
                return link
        return None


class UcxLog:
    """UCX's log, kept in memory. `link` may be called from any thread."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("ucx-log")
        self._offset = 0
        self._tables: list[ProtocolTable] = []
        self._lock = threading.Lock()

    def environment(self) -> dict[str, str]:
        """To be set while the library is loaded and an agent is made; not for child processes."""
        return {
            "UCX_LOG_FILE": f"/proc/self/fd/{self._fd}",
            "UCX_PROTO_INFO": READ_PROTOCOLS,
        }

    def link(self, block_bytes: int, memory: str) -> str | None:
        """What reads of one block took last, in words; None before the first such read.

        `memory` is "VRAM" or "DRAM" of the local pool: reads of the generations, always from host
        to host, are not taken for reads of blocks in a GPU.
        """
        with self._lock:
            self.refresh()
        for table in reversed(self._tables):
            on_host = "into host" in table.operation
            if table.is_remote and on_host == (memory == "DRAM"):
                link = table.link_for(block_bytes)
                return None if link is None else in_words(link)
        return None

    def refresh(self) -> None:
        """Takes in what UCX has printed since the last call."""
        ctypes.CDLL(None).fflush(None)  # UCX writes through stdio, which holds small outputs back
        size = os.fstat(self._fd).st_size
        if size <= self._offset:
            return
        text = os.pread(self._fd, size - self._offset, self._offset).decode(errors="replace")
        self._offset = size
        for line in text.splitlines():
            self._take(line)
        del self._tables[:-MAX_TABLES]

    def _take(self, line: str) -> None:
        start, end = line.find("|"), line.rfind("|")
        if 0 <= start < end:
            self._take_row([cell.strip() for cell in line[start + 1 : end].split("|")])
        elif " WARN " in line or " ERROR " in line or "Fatal" in line:
            _log.warning("UCX reports", line=line.split("]", 2)[-1].strip())

    def _take_row(self, cells: list[str]) -> None:
        if len(cells) == 1 and " cfg#" in cells[0]:
            self._tables.append(ProtocolTable(cells[0]))
        elif len(cells) == 1 and self._tables:
            self._tables[-1].operation = cells[0]
        elif len(cells) == 3 and self._tables and cells[0][:1].isdigit():
            self._tables[-1].rows.append((cells[0], cells[2]))


def in_words(link: str) -> str:
    """`cma/memory` is "shared memory (cma)"; unknown names are given as they are."""
    name = link.partition("/")[0]
    if name in _SHARED_MEMORY:
        return f"shared memory ({name})"
    if name == "tcp":
        return f"tcp ({link.partition('/')[2]})"
    if name == "cuda_ipc":
        return "NVLink or PCIe (cuda_ipc)"
    if name.startswith(("rc_", "dc_", "ud_", "srd")):
        return f"RDMA ({link})"
    return link
