"""What a client's grammar may be made of. Every limit comes before the work that it limits.

They keep away what is known to crash llguidance or to hang it (1.9.1: a chain of 1,200 `$ref`s, one
of 3,000 Lark rules, an `allOf` of 23 patterns); what still takes too long, a trial in a process of
its own finds (router/text_worker/grammar_trial.py).
"""

from __future__ import annotations

from typing import Any, NoReturn

from cluster.errors import InvalidRequest

MAX_GRAMMAR_BYTES = 32 * 1024
"""Of the text that engines compile."""
MAX_SCHEMAS = 1024
"""In a form, and in all tools of a request together. 1,000 are looked through in 3 ms."""
MAX_DEPTH = 48
MAX_PROPERTIES = 512
"""Of one object: 2,000 optional ones take 0.26 s to compile."""
MAX_ALTERNATIVES = 256
"""Of one anyOf or enum-like list of schemas: 3,000 take 0.38 s."""
MAX_REFS = 256
"""Different targets of `$ref`, and so the length of every chain of them."""
MAX_PATTERNS = 64
MAX_PATTERNS_TOGETHER = 12
"""Where `allOf` may ask for several at once: each of them multiplies what the lexer has to do."""
MAX_EXCLUSIONS = 512
"""Pairs of `oneOf`s' alternatives that are compared."""
MAX_SCHEMA_STEPS = 20_000
"""Schemas, values with all that is in them, and names that are looked at for it, in all schemas of
a request: 15 ms with the look through them, 20 where all is objects of which no two are alike
(2-core machine; a Lark text of nothing but brackets takes 6 more). 32 alternatives of 16 properties
that a constant tells apart take 4,100, in 3 ms; where five types among 15 do, 9,900, in 7."""
MAX_TEXT_STEPS = 4096
"""Schemas that are asked which texts they take, in all tools of a request."""
MAX_LEAST_CHARS = 16_384
"""Of a string that has to be so long: each character takes four states or more of those that the
lexer of an engine has for an answer (cluster/models/text/grammars.py), so a longer one never
fits."""
MAX_LARK_RULES = 256
MAX_LARK_DEPTH = 64
"""Brackets in brackets."""
MAX_LARK_SCHEMAS = 256
"""Places of `%json`: what stands behind one that is no JSON costs as much as the text before it."""
MAX_CHOICES_OF_TEXT = 1024


def refuse(what: str, param: str) -> NoReturn:
    """The client's to change."""
    raise InvalidRequest(what, param=param)


def check_at_most(number: int, limit: int, what: str, param: str) -> None:
    """Raises InvalidRequest with the number and the limit."""
    if number > limit:
        refuse(f"{param} has {number} {what}; allowed: {limit}", param)


def check_least(length: Any, place: str, param: str) -> None:
    """Of a `minLength`, whatever the client has written there: what is no number the compiler
    refuses. Raises InvalidRequest."""
    if isinstance(length, int | float) and length > MAX_LEAST_CHARS:
        refuse(f"{param}: minLength at {place} is {length}; allowed: {MAX_LEAST_CHARS}", param)


def check_size(text: str, param: str) -> str:
    """The text itself. Raises InvalidRequest for one that is too long, or no Unicode."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        refuse(f"{param} has half a character (a lone surrogate); send whole ones", param)
    check_at_most(size, MAX_GRAMMAR_BYTES, "bytes", param)
    return text
