"""A client in a process of its own, whose memory is not the router's: calls with one large message.

python large_caller.py ADDRESS METHOD NUM_CALLERS CALLS_PER_CALLER FIELD_NUMBER NUM_BYTES
"""

from __future__ import annotations

import sys
import threading
from collections import Counter

import grpc

OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]


def message_of(field: int, num_bytes: int) -> bytes:
    """A protobuf message with one string."""
    length, varint = num_bytes, bytearray()
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([field << 3 | 2, *varint, length]) + b"x" * num_bytes


def call(address: str, method: str, num_calls: int, message: bytes, ends: Counter[str]) -> None:
    """One after the other, on a connection of its own."""
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        ask = channel.unary_stream(method)
        for _ in range(num_calls):
            try:
                for _ in ask(message):
                    pass
                ends["OK"] += 1
            except grpc.RpcError as failure:
                ends[failure.code().name] += 1


def main() -> None:
    """Prints how the calls ended."""
    address, method = sys.argv[1:3]
    num_callers, num_calls, field, num_bytes = map(int, sys.argv[3:7])
    message, ends = message_of(field, num_bytes), Counter[str]()
    callers = [
        threading.Thread(target=call, args=(address, method, num_calls, message, ends))
        for _ in range(num_callers)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    print(dict(ends))


if __name__ == "__main__":
    main()
