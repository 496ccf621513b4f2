"""Asks a fleet through the official OpenAI client: python -m examples.openai_client [URL]

Shows what is splitserve's own: `timings` adds a record of where the time went to the last chunk.
"""

from __future__ import annotations

import sys

from openai import OpenAI


def main(url: str) -> None:
    """One streamed chat, then its usage and timings."""
    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    stream = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": "Name three rivers in Europe."}],
        max_tokens=64,
        temperature=0.0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"timings": True},
    )
    for chunk in stream:
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
        if chunk.usage is not None:
            print(f"\n{chunk.usage}")
        if timing := (chunk.model_extra or {}).get("splitserve"):
            print(timing)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
