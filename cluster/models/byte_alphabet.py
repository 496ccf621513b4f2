"""The alphabet of byte-level BPE: one printable character for each byte (GPT-2's choice).

Printable Latin-1 characters stand for themselves; the other bytes get U+0100 and up, in order.
"""

from __future__ import annotations


def _alphabet() -> dict[int, str]:
    themselves = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in themselves]
    table = {byte: chr(byte) for byte in themselves}
    table.update({byte: chr(0x100 + index) for index, byte in enumerate(others)})
    return table


CHAR_OF_BYTE = _alphabet()
BYTE_OF_CHAR = {char: byte for byte, char in CHAR_OF_BYTE.items()}


def spell(raw: bytes) -> str:
    """Bytes as a byte-level vocabulary writes them."""
    return "".join(CHAR_OF_BYTE[byte] for byte in raw)


def unspell(token: str) -> bytes | None:
    """The bytes a token stands for; None when it is not written in the alphabet."""
    try:
        return bytes(BYTE_OF_CHAR[char] for char in token)
    except KeyError:
        return None
