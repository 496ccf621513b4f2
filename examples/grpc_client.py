"""Asks a fleet over gRPC: python -m examples.grpc_client [HOST:PORT]

A deadline bounds the whole request, wherever it is then; leaving the loop early cancels it there.
"""

from __future__ import annotations

import sys

import grpc

from protos import generation_pb2, inference_pb2, inference_pb2_grpc

DEADLINE_S = 60.0


def main(address: str) -> None:
    """One generation: pieces of text, then usage and timings."""
    chat = inference_pb2.Chat(
        messages=[inference_pb2.ChatMessage(role="user", content="Name three rivers in Europe.")]
    )
    sampling = generation_pb2.SamplingParams(temperature=0.0, max_tokens=64)
    with grpc.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        for answer in stub.Generate(
            inference_pb2.GenerateRequest(chat=chat, sampling=sampling), timeout=DEADLINE_S
        ):
            if answer.HasField("chunk"):
                print(answer.chunk.text, end="", flush=True)
            elif answer.HasField("complete"):
                print(f"\n{answer.complete.usage}{answer.complete.timing}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051")
