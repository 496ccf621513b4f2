"""What the families' own code makes of answers: python family_code.py FAMILY VERB < REQUESTS

FAMILY is mistral (mistral-common), llama (llama-models), qwen (qwen-agent), transformers (the
response templates that it has for families). REQUESTS is a JSON list of objects, with `dialect`
where a family has several, and so is what is written. `read` makes calls as [name, arguments] of a
`text`, `write` a text of `calls`, and `both` that text and what is read of it; `template` is a chat
template, which Mistral alone makes. An error is its name as a text.

It runs in a process of its own, with the packages of family_code.txt on its path, which stand there
without what they require beside: only what reads and writes calls is imported.
"""

from __future__ import annotations

import ast
import base64
import json
import re
import sys
import types
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Request = dict[str, Any]
Calls = list[tuple[str, Any]]
_CONTROL = re.compile(r'"(?:[^"\\]|\\.)*"|(\[TOOL_CALLS\]|\[ARGS\]|\[CALL_ID\])', re.DOTALL)
"""A word of Mistral's, which is one token, or a text, in which the same characters are several."""


class Mistral:
    """`dialect` is the version of the tokenizer: v3, v7, v11, v13. Its vocabulary is bytes."""

    def __init__(self) -> None:
        from mistral_common.tokens.tokenizers.base import TokenizerVersion
        from mistral_common.tokens.tokenizers.instruct import (
            InstructTokenizerV3,
            InstructTokenizerV7,
            InstructTokenizerV11,
            InstructTokenizerV13,
        )
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        special = [dict(each) for each in Tekkenizer.DEPRECATED_SPECIAL_TOKENS]
        for word in ("[ARGS]", "[CALL_ID]"):
            if word not in {each["token_str"] for each in special}:
                special.append({"rank": len(special), "token_str": word, "is_control": True})
        vocabulary = [
            {"rank": byte, "token_bytes": base64.b64encode(bytes([byte])).decode(), "token_str": ""}
            for byte in range(256)
        ]
        kinds = {
            "v3": InstructTokenizerV3,
            "v7": InstructTokenizerV7,
            "v11": InstructTokenizerV11,
            "v13": InstructTokenizerV13,
        }
        self._by_dialect = {
            dialect: kind(
                Tekkenizer(
                    vocab=vocabulary,
                    special_tokens=special,
                    pattern=r"[\s\S]",
                    vocab_size=256 + len(special),
                    num_special_tokens=len(special),
                    version=TokenizerVersion(dialect),
                )
            )
            for dialect, kind in kinds.items()
        }

    def read(self, request: Request) -> Calls:
        from mistral_common.experimental.tools import (
            _decode_tool_calls,
            _split_content_and_tool_calls,
        )

        tokenizer = self._by_dialect[request["dialect"]].tokenizer
        ids: list[int] = []
        text, start = request["text"], 0
        for found in _CONTROL.finditer(text):
            if found[1]:
                ids += tokenizer.encode(text[start : found.start()], bos=False, eos=False)
                ids.append(tokenizer.get_special_token(found[1]))
                start = found.end()
        ids += tokenizer.encode(text[start:], bos=False, eos=False)
        begin = tokenizer.get_special_token("[TOOL_CALLS]")
        _, calls = _split_content_and_tool_calls(ids, begin)
        told = _decode_tool_calls(calls, tokenizer)
        return [(call.function.name, json.loads(call.function.arguments)) for call in told]

    def write(self, request: Request) -> str:
        from mistral_common.protocol.instruct.messages import AssistantMessage
        from mistral_common.protocol.instruct.tool_calls import FunctionCall, ToolCall
        from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy

        calls = [
            ToolCall(
                id=f"{index:09}",
                function=FunctionCall(name=name, arguments=json.dumps(arguments)),
            )
            for index, (name, arguments) in enumerate(request["calls"])
        ]
        instruct = self._by_dialect[request["dialect"]]
        ids = instruct.encode_assistant_message(AssistantMessage(tool_calls=calls), False)
        text: str = instruct.tokenizer.decode(ids, special_token_policy=SpecialTokenPolicy.KEEP)
        return text.removesuffix("</s>")

    def template(self, request: Request) -> str:
        from mistral_common.integrations.chat_templates.chat_templates import generate_chat_template
        from mistral_common.tokens.tokenizers.base import TokenizerVersion

        version = TokenizerVersion(request["dialect"])
        thinks = version.supports_model_settings
        text: str = generate_chat_template(
            spm=version < TokenizerVersion.v7,
            tokenizer_version=version,
            image_support=False,
            audio_support=False,
            thinking_support=version >= TokenizerVersion.v13,
            default_system_prompt=None,
            plain_thinking_support=False,
            use_special_token_variables=True,
            model_settings_fields=None,
            reasoning_effort_values=("none", "high") if thinks else None,
            reasoning_effort_default="none" if thinks else None,
        )
        return text


class Llama:
    """`dialect`: json or python_list. llama-models reads the first call of an answer, and of a list
    all, where it is asked for that; it writes one."""

    def read(self, request: Request) -> Calls:
        from llama_models.llama3.tool_utils import (
            ToolUtils,
            is_valid_python_list,
            parse_python_list_for_function_calls,
        )

        text = request["text"].strip(" ")
        for word in ("<|python_tag|>", "<|python_start|>"):
            text = text.removeprefix(word)
        text = text.replace("<|python_end|>", "")
        if is_valid_python_list(text):
            calls: Calls = parse_python_list_for_function_calls(text)
            return calls
        found = ToolUtils.maybe_extract_custom_tool_call(text)
        return [] if found is None else [found]

    def write(self, request: Request) -> str:
        from llama_models.datatypes import ToolCall, ToolPromptFormat
        from llama_models.llama3.tool_utils import ToolUtils

        ((name, arguments),) = request["calls"]
        call = ToolCall(call_id="0", tool_name=name, arguments=arguments)
        text: str = ToolUtils.encode_tool_call(call, ToolPromptFormat(request["dialect"]))
        return text


class Qwen:
    """qwen-agent's prompt of Nous's kind, Hermes's. Packages around it would ask for the whole of
    its agents: they are left out."""

    def __init__(self) -> None:
        for name in ("", ".llm", ".llm.fncall_prompts", ".utils"):
            self._stand_in(f"qwen_agent{name}")
        named = types.ModuleType("qwen_agent.utils.utils")
        for name in (
            "format_as_multimodal_message",
            "format_as_text_message",
            "has_chinese_messages",
        ):
            setattr(named, name, None)  # of other prompts
        sys.modules[named.__name__] = named

    def _stand_in(self, name: str) -> None:
        module = types.ModuleType(name)
        parent, _, last = name.rpartition(".")
        if parent:
            module.__path__ = [f"{sys.modules[parent].__path__[0]}/{last}"]
        else:
            found = find_spec(name)
            assert found is not None and found.submodule_search_locations is not None
            module.__path__ = list(found.submodule_search_locations)
        sys.modules[name] = module

    def read(self, request: Request) -> Calls:
        from qwen_agent.llm.fncall_prompts.nous_fncall_prompt import NousFnCallPrompt
        from qwen_agent.llm.schema import ContentItem, Message

        answer = Message(role="assistant", content=[ContentItem(text=request["text"])])
        told = NousFnCallPrompt().postprocess_fncall_messages([answer])
        calls = [each.function_call for each in told if each.function_call is not None]
        return [(call.name, json.loads(call.arguments)) for call in calls]

    def write(self, request: Request) -> str:
        from qwen_agent.llm.fncall_prompts.nous_fncall_prompt import NousFnCallPrompt
        from qwen_agent.llm.schema import FunctionCall, Message

        turns = [
            Message(
                role="assistant",
                content=[],
                function_call=FunctionCall(name=name, arguments=json.dumps(arguments)),
            )
            for name, arguments in request["calls"]
        ]
        told = NousFnCallPrompt().preprocess_fncall_messages(turns, [], "en")
        return "".join(item.text for item in told[-1].content)


class Transformers:
    """`dialect` is a type of model, `tools` those that were offered. It writes nothing. Templates
    are read out of the file: what stands beside them there imports torch."""

    def __init__(self) -> None:
        found = find_spec("transformers")
        assert found is not None and found.origin is not None
        source = Path(found.origin).with_name("cli") / "serving" / "utils.py"
        (by_types,) = (
            ast.literal_eval(node.value)
            for node in ast.parse(source.read_text()).body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "_RESPONSE_TEMPLATE_FALLBACKS"
        )
        self._by_type = {kind: each for kinds, each in by_types.items() for kind in kinds}

    def read(self, request: Request) -> Calls:
        from transformers.utils.chat_parsing import parse_response

        told = parse_response(
            request["text"],
            self._by_type[request["dialect"]],
            prefix="<|im_start|>assistant\n",
            tools=request["tools"],
        )
        calls = [each["function"] for each in told.get("tool_calls") or []]
        return [(call["name"], call.get("arguments", {})) for call in calls]


_FAMILIES: dict[str, Callable[[], Any]] = {
    "mistral": Mistral,
    "llama": Llama,
    "qwen": Qwen,
    "transformers": Transformers,
}


def both(code: Any, request: Request) -> tuple[str, Calls]:
    """What it writes, and reads of that."""
    text = code.write(request)
    return text, code.read({**request, "text": text})


def main() -> None:
    """Answers all requests."""
    family, verb = sys.argv[1:]
    code = _FAMILIES[family]()
    answer = partial(both, code) if verb == "both" else getattr(code, verb)
    answers: list[Any] = []
    for request in json.load(sys.stdin):
        try:
            answers.append(answer(request))
        except Exception as error:  # whatever a family's code raises of what it cannot read
            answers.append(type(error).__name__)
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
