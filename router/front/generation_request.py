"""What both fronts make of a client's request."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from cluster.errors import InvalidRequest
from cluster.grammar import Grammar
from cluster.sampling import SamplingParams, in_words
from router.dispatch.time_limits import TimeLimits
from router.front.caller import NOBODY, Caller
from router.telemetry.request_trace import RequestTrace
from router.tenants.tenant import ANYBODY, Tenant
from router.text.stop_strings import StopStrings

MAX_LOGIT_BIAS = 1024
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256
MAX_STOP_CHARS_TOGETHER = 1024
"""Of all stop strings of a body: what its automaton is made of."""
MAX_SALT_CHARS = 256
MAX_PREDICTION_CHARS = 16_384
"""It is read on the event loop: up to 64 KiB that stand beside the 32 of all else."""
SEED_BITS = 64
SEED_VALUES = 1 << SEED_BITS


class TextPrompt(msgspec.Struct, frozen=True):
    """Encoded with the model's own prefix (BOS), if it has one."""

    text: str
    add_special: bool = True
    keep_last: int | None = None
    """Of its tokens, only so many of the last; None: all."""
    pair: str | None = None
    """A second text behind it, as the tokenizer puts two together; None: there is none."""


class Rendering(msgspec.Struct, frozen=True, kw_only=True):
    """How a chat becomes text."""

    add_generation_prompt: bool = True
    """The opening of an answer follows the last message."""
    continue_final: bool = False
    """The last message is not closed: the answer goes on with it."""
    add_special: bool = False
    """The model's own prefix (BOS) before what the template wrote."""
    variables: dict[str, Any] = {}
    """`chat_template_kwargs`: what the template may ask for beside the messages."""


class ToolTalk(msgspec.Struct, frozen=True, kw_only=True):
    """What a chat has beside texts; all of it plain JSON values that were looked through."""

    tools: tuple[dict[str, Any], ...] = ()
    """That the model may call, as OpenAI's clients describe them."""
    extras: dict[int, dict[str, Any]] = {}
    """By a message's index: what stands in it beside role and content, such as `tool_calls`."""
    num_chars: int = 0
    """Of all that, at least, in a rendered chat."""


class ChatPrompt(msgspec.Struct, frozen=True):
    """Messages as (role, content), rendered with the model's template."""

    messages: tuple[tuple[str, str], ...]
    rendering: Rendering = Rendering()
    keep_last: int | None = None
    """As in TextPrompt."""
    talk: ToolTalk | None = None
    """None: nothing but texts."""


class TokenPrompt(msgspec.Struct, frozen=True):
    """Ids of the model's vocabulary, used as they are."""

    token_ids: list[int]
    """Changed by nobody: it is the list that the dispatcher gets."""
    text: str | None = None
    """Theirs, where it is known and will be asked for."""


Prompt = TextPrompt | ChatPrompt | TokenPrompt


class TextOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens become the text of an answer."""

    shows_special: bool = False
    """Special tokens are written out, but for one that ends the choice."""
    includes_stop: bool = False
    """What ended the choice, a stop string or a stop token, is part of the text."""


class Wishes(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What a client asked of the text, whatever the prompt: the same for all prompts of a body."""

    sampling: SamplingParams
    """`max_tokens` and `seed` are replaced by the fields below."""
    num_best: int | None = None
    """Of the choices, only so many are told: those with the highest mean logprob. None: all."""
    tells_logprobs: bool = True
    """False: nobody asked for those of the answer; the choice of the best needs them."""
    max_tokens: int | None
    """None: the default below; 0: nothing, where the answer tells the prompt."""
    seed: int | None = None
    """0 .. 2**64 - 1; None: one is drawn for every prompt."""
    is_echoed: bool = False
    """The prompt's text is part of the answer."""
    default_max_tokens: int | None = None
    """As far as the context has room; None: to its end."""
    stop: tuple[str, ...] = ()
    cache_salt: str = ""
    """The client's part of the cache salt; it can only narrow what is shared."""
    adapter: str = ""
    """Its name; empty: the model alone."""
    keep_tokens: bool = False
    """Deltas carry their tokens."""
    text: TextOptions = TextOptions()
    prediction: str | None = None
    """What the client expects the answer to be: to guess by, and no more. None: it says nothing."""
    grammar_in_thought: Grammar | None = None
    """The sampling's, where the prompt's end has begun a thought; None: it is the same."""
    grammar_within: Grammar | None = None
    """A part of it that is to be tried by itself."""

    @cached_property
    def stops(self) -> StopStrings:
        """`stop`, as all prompts of the body share them."""
        return StopStrings(self.stop)

    @property
    def tells_prompt(self) -> bool:
        """True when the prompt is part of the answer, in one way or another."""
        return self.is_echoed or self.sampling.prompt_logprobs is not None


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt with everything that shapes its answer."""

    request_id: str
    """Unique in the fleet: made here, never a client's alone."""
    tenant: Tenant = ANYBODY
    """Who asks, as its key says."""
    caller: Caller = NOBODY
    """By whose connection it came."""
    prompt: Prompt
    wishes: Wishes
    limits: TimeLimits
    trace: RequestTrace | None = None
    """None: it is not traced."""


def checked_seed(asked: int) -> int:
    """Any 64-bit seed, signed or not, as 0 .. 2**64 - 1. Raises InvalidRequest for others."""
    if not -(2**63) <= asked < SEED_VALUES:
        raise InvalidRequest(f"seed is {in_words(asked)}; allowed: a 64-bit integer", param="seed")
    return asked % SEED_VALUES


def check_stops(stops: tuple[str, ...], param: str = "stop") -> tuple[str, ...]:
    """Raises InvalidRequest for too many, empty or too long stop strings, each or together."""
    if len(stops) > MAX_STOP_STRINGS:
        raise InvalidRequest(
            f"{param} has {len(stops)} strings; allowed: {MAX_STOP_STRINGS}", param=param
        )
    for stop in stops:
        if not 1 <= len(stop) <= MAX_STOP_CHARS:
            raise InvalidRequest(
                f"a stop string has {len(stop)} characters; allowed: 1 to {MAX_STOP_CHARS}",
                param=param,
            )
    if (num_chars := sum(map(len, stops))) > MAX_STOP_CHARS_TOGETHER:
        raise InvalidRequest(
            f"{param} has {num_chars} characters; allowed: {MAX_STOP_CHARS_TOGETHER} together",
            param=param,
        )
    return stops


def check_prediction(text: str) -> str:
    """Raises InvalidRequest for a prediction that is too long."""
    if len(text) > MAX_PREDICTION_CHARS:
        raise InvalidRequest(
            f"prediction has {len(text)} characters; allowed: {MAX_PREDICTION_CHARS}: send the "
            "part that the answer begins with",
            param="prediction",
        )
    return text


def check_num_biases(count: int) -> None:
    """Raises InvalidRequest for a `logit_bias` with too many entries; called before any is read."""
    if count > MAX_LOGIT_BIAS:
        raise InvalidRequest(
            f"logit_bias has {count} entries; allowed: {MAX_LOGIT_BIAS}", param="logit_bias"
        )


def check_salt(salt: str) -> str:
    """Raises InvalidRequest for a salt that is too long."""
    if len(salt) > MAX_SALT_CHARS:
        raise InvalidRequest(
            f"cache_salt has {len(salt)} characters; allowed: {MAX_SALT_CHARS}",
            param="cache_salt",
        )
    return salt
