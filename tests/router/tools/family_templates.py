"""Chat templates written after those of families, short, with all that matters to tools."""

from __future__ import annotations

_R1_CALL = (
    "'<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\\n' "
    "+ '```json' + '\\n' + tool['function']['arguments'] + '\\n```<｜tool▁call▁end｜>'"
)
DEEPSEEK_R1 = (
    "{%- set ns = namespace(is_first=false, is_tool=false, system='') -%}"
    "{%- for m in messages -%}{%- if m['role'] == 'system' -%}"
    "{%- set ns.system = m['content'] -%}{%- endif -%}{%- endfor -%}{{ ns.system }}"
    "{%- for m in messages -%}"
    "{%- if m['role'] == 'user' -%}{{ '<｜User｜>' + m['content'] }}{%- endif -%}"
    "{%- if m['role'] == 'assistant' and m['tool_calls'] -%}{%- for tool in m['tool_calls'] -%}"
    "{{ '<｜Assistant｜><｜tool▁calls▁begin｜>' if not ns.is_first else '\\n' }}"
    "{{ " + _R1_CALL + " }}{%- set ns.is_first = true -%}{%- endfor -%}"
    "{{ '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}{%- endif -%}"
    "{%- if m['role'] == 'assistant' and m['content'] is not none -%}"
    "{{ '<｜Assistant｜>' + m['content'].split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}"
    "{%- endif -%}"
    "{%- if m['role'] == 'tool' -%}{%- set ns.is_tool = true -%}"
    "{{ '<｜tool▁output▁begin｜>' + m['content'] + '<｜tool▁output▁end｜>' }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt and not ns.is_tool -%}"
    "{{ '<｜Assistant｜><think>\\n' }}{%- endif -%}"
)
"""R1's, V3's and of the models distilled from R1: arguments are put together as texts, and an
answer that has content has a turn of its own for it."""
DEEPSEEK_V31 = (
    "{%- set ns = namespace(system='') -%}"
    "{%- for m in messages -%}{%- if m['role'] == 'system' -%}"
    "{%- set ns.system = ns.system + m['content'] -%}{%- endif -%}{%- endfor -%}{{ ns.system }}"
    "{%- for m in messages -%}"
    "{%- if m['role'] == 'user' -%}{{ '<｜User｜>' + m['content'] }}{%- endif -%}"
    "{%- if m['role'] == 'assistant' and m['tool_calls'] is defined -%}"
    "{{ '<｜Assistant｜></think>' }}{{ m['content'] if m['content'] is not none }}"
    "{{ '<｜tool▁calls▁begin｜>' }}{%- for tool in m['tool_calls'] -%}"
    "{{ '<｜tool▁call▁begin｜>' + tool['function']['name'] + '<｜tool▁sep｜>' "
    "+ tool['function']['arguments'] + '<｜tool▁call▁end｜>' }}{%- endfor -%}"
    "{{ '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}"
    "{%- elif m['role'] == 'assistant' -%}{{ m['content'] + '<｜end▁of▁sentence｜>' }}{%- endif -%}"
    "{%- if m['role'] == 'tool' -%}"
    "{{ '<｜tool▁output▁begin｜>' + m['content'] + '<｜tool▁output▁end｜>' }}{%- endif -%}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{ '<｜Assistant｜></think>' }}{%- endif -%}"
)
LLAMA_31 = (
    "{{ 'Environment: ipython\\n' }}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}{{ '[ipython]' + m.content | tojson }}"
    "{% elif 'tool_calls' in m %}{% if not m.tool_calls | length == 1 %}"
    '{{ raise_exception("This model only supports single tool-calls at once!") }}{% endif %}'
    "{% set call = m.tool_calls[0].function %}"
    '{{ \'{"name": "\' + call.name + \'", "parameters": \' }}{{ call.arguments | tojson }}{{ "}" }}'
    "{% else %}{{ '[' + m.role + ']' + m.content }}{% endif %}{% endfor %}"
)
"""Of 3.1, 3.2 and 3.3."""
QWEN = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    '{% for call in m.tool_calls or [] %}<tool_call>\n{"name": "{{ call.function.name }}", '
    '"arguments": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endfor %}'
)
CONCATENATING = QWEN.replace("call.function.arguments | tojson", "call.function.arguments")
"""Arguments written as they are given: of an object, Python's."""
