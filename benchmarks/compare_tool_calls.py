"""vLLM's parsers of tool calls beside ours: python -m benchmarks.compare_tool_calls [PYTHON]

PYTHON is that of vLLM's environment (`benchmarks/peers/install.sh vllm`), by default where that
puts it. The answers are those of the tests. It prints every difference, those that have a reason
with it, and ends with 1 where one has none or a reason is out of date.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers.tool_calls_vllm import BEFORE_ANSWERS
from tests.router.tools.recorded_calls import (
    FROM_FAMILIES,
    MALFORMED,
    RECORDED,
    TOOLS,
    Call,
    Recorded,
    gathered,
    parsed,
)

_PEERS = Path(os.environ.get("SPLITSERVE_PEERS") or Path.home() / ".cache" / "splitserve-peers")
_SCRIPT = Path(__file__).parent / "peers" / "tool_calls_vllm.py"
_PARSERS = {"hermes": "hermes", "qwen3_coder": "qwen3_coder", "llama3_json": "llama3_json"}
"""vLLM's name by ours, where it does not depend on the text."""
_REASONS = {
    ("hermes", '{"name": 3}'): "one call that is none ends all others",
    ("hermes", "</tool_call>é"): "it ends a call at the closing word inside a text",
    ("hermes", '"{\\"city'): "it tells arguments that are a text as a text",
    ("hermes", '<tool_call>{"name": "now"}</tool_call>'): "it wants arguments of every call",
    ("qwen3_coder", "<parameter=a>\n1"): "it tells a call that has no end, with no arguments",
    ("mistral", '[TOOL_CALLS]",'): "it takes Mistral's word inside a text for a call",
    ("mistral", "[TOOL_CALLS]{}"): "it tells a call without a name",
    ("mistral", "[CALL_ID][ARGS]"): "it tells a call without arguments, and its mark as the name",
    ("functiongemma", "days:2"): "it reads texts alone: numbers, lists and objects are left out",
    ("functiongemma", "where:{"): "it reads texts alone: numbers, lists and objects are left out",
    ("functiongemma", "{a:"): "it tells a call that has no end, with no arguments",
}
"""By its parser, and what stands in such an answer."""


def main() -> int:
    """1: there is a difference that nobody has explained, or none where one was."""
    python = sys.argv[1] if len(sys.argv) > 1 else str(_PEERS / "vllm" / "bin" / "python")
    answers = [
        (each, parser)
        for each in (*RECORDED, *FROM_FAMILIES, *MALFORMED)
        if (parser := _parser_of(each)) is not None
    ]
    asked = [
        {"parser": parser, "text": _without_thought(each), "tools": TOOLS}
        for each, parser in answers
    ]
    num_alike, is_wrong = 0, False
    for (each, parser), theirs in zip(answers, _told(python, asked), strict=True):
        calls, _, _ = gathered(parsed(each.parsing, list(each.text))[0])
        reason = _reason(parser, each.text)
        if calls == theirs:
            num_alike += 1
            is_wrong |= reason is not None
        else:
            is_wrong |= reason is None
            print(f"{parser}: {each.text!r}\n  ours:   {calls}\n  vLLM's: {theirs}")
        if reason is not None:
            print(f"  {'' if calls != theirs else 'no more: '}{reason}")
    print(f"{num_alike} of {len(answers)} answers are the same calls")
    return int(is_wrong)


def _reason(parser: str, text: str) -> str | None:
    return next(
        (why for (who, sign), why in _REASONS.items() if who == parser and sign in text), None
    )


def _parser_of(each: Recorded) -> str | None:
    """None: an answer that it reads with a tokenizer of Mistral's own alone; mistral-common is the
    measure of those."""
    if each.format == "mistral":
        is_old = "[ARGS]" not in each.text and "[TOOL_CALLS]{" not in each.text
        return None if is_old or "[CALL_ID]abc" in each.text else "mistral"
    if each.format == "pythonic":
        return "llama4_pythonic" if "<|python_start|>" in each.text else "pythonic"
    if each.format == "deepseek_v3":
        return "deepseek_v3" if "```json" in each.text else "deepseek_v31"
    return _PARSERS.get(each.format, "functiongemma")


def _without_thought(each: Recorded) -> str:
    """Which others of its parsers read."""
    return each.text.rpartition("</think>\n\n")[2] if each.thought else each.text


def _told(python: str, asked: list[dict[str, Any]]) -> list[list[Call]]:
    done = subprocess.run(
        [python, str(_SCRIPT)],
        input=json.dumps(asked),
        env={**os.environ, "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "CRITICAL"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout.rpartition(BEFORE_ANSWERS)[2])
    return [
        [] if isinstance(each, str) else [(name, arguments) for name, arguments in each]
        for each in told
    ]


if __name__ == "__main__":
    sys.exit(main())
