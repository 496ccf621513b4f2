"""What vLLM's parsers of tool calls make of answers: in its environment, with REQUESTS as input.

REQUESTS is a JSON list of objects with `parser` (vLLM's name of it), `text` and `tools`. What is
written, after a line that says so, is a list of calls as [name, arguments] for each.
"""

import json
import sys

BEFORE_ANSWERS = "answers:"
_SPECIAL = (
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>"),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
    *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<think>", "</think>", "[THINK]", "[/THINK]"),
)


class Vocabulary:
    """All of a tokenizer that parsers of whole answers ask for."""

    all_special_tokens: list[str] = []
    all_special_ids: list[int] = []

    def get_vocab(self):
        return {word: index for index, word in enumerate(_SPECIAL)}

    def encode(self, text, **_):
        return []

    def decode(self, token_ids, **_):
        return "".join(_SPECIAL[each] for each in token_ids)


def main() -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    answers = []
    for asked in json.load(sys.stdin):
        request = ChatCompletionRequest(
            model="m", messages=[{"role": "user", "content": "Hi"}], tools=asked["tools"]
        )
        parser = ToolParserManager.get_tool_parser(asked["parser"])(Vocabulary(), request.tools)
        try:
            told = parser.extract_tool_calls(asked["text"], request).tool_calls
            answers.append(
                [(each.function.name, json.loads(each.function.arguments)) for each in told]
            )
        except Exception as error:  # whatever it raises of what it cannot read
            answers.append(type(error).__name__)
    print(BEFORE_ANSWERS)
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
