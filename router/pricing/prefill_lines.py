"""How long each worker takes for a prompt: a line of its own, which starts from the fleet's.

    milliseconds = base + tokens * slope + tokens * context / 1024 * pair

A worker's samples are fitted with two points of the line that is believed without them: its own
word, if it says what its steps cost, else the fleet's line, and before that the stated default.
Those points weigh as much as PRIOR_SAMPLES at first and fade with every sample. So a new worker is
priced as the others are, and one that is four times slower is known after a few prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from cluster.generation import pairs_of
from cluster.identity import WorkerKey
from router.pricing.route import PrefillSpeed

DEFAULT_TOKENS_PER_S = 2000.0
"""Measured on two CPU cores with 135M parameters: 512 tokens in 224 ms."""
DEFAULT_BASE_MS = 5.0
PRIOR_SAMPLES = 4.0
_LEAST_PRIOR = 0.01
_PRIOR_TOKENS = (16, 1024)
_DECAY = 0.9
"""Of a sample's weight with each newer one: some ten samples count."""
_SURPRISE = 4.0
"""A sample counts as at most so many times the expected, or one so-many-th: a first prefill is
cold, and says nothing of a worker."""

_WAITING = 1.5
"""A sample counts as at most so many times what the worker says of its own steps: the rest was a
wait for a core that neighbours held, or for prompts before it. Less than the two at which a prompt
would stay with an idle decode worker: see router/pricing/policy.py."""

_NEWS = 0.01
"""By so much of itself a word must change to be one: workers say a little else with each frame."""

PrefillLine = tuple[float, float]
"""(base_ms, ms_per_token)"""
_DEFAULT: PrefillLine = (DEFAULT_BASE_MS, 1000 / DEFAULT_TOKENS_PER_S)


@dataclass(slots=True)
class _Sums:
    """Of weights, tokens, milliseconds, tokens squared, and tokens times milliseconds."""

    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    prior: float = PRIOR_SAMPLES

    def fade(self) -> None:
        self.prior = max(_LEAST_PRIOR, self.prior * _DECAY)
        for name in ("weight", "x", "y", "xx", "xy"):
            setattr(self, name, getattr(self, name) * _DECAY)

    def add(self, tokens: float, took_ms: float, weight: float = 1.0) -> None:
        self.weight += weight
        self.x += weight * tokens
        self.y += weight * took_ms
        self.xx += weight * tokens * tokens
        self.xy += weight * tokens * took_ms

    def line(self, prior: PrefillLine) -> PrefillLine:
        """Least squares of the samples and the two points of the prior."""
        base, slope = prior
        all_in = _Sums(self.weight, self.x, self.y, self.xx, self.xy)
        for tokens in _PRIOR_TOKENS:
            all_in.add(tokens, base + tokens * slope, self.prior / len(_PRIOR_TOKENS))
        return all_in._solve()

    def _solve(self) -> PrefillLine:
        slope = (self.weight * self.xy - self.x * self.y) / (
            self.weight * self.xx - self.x * self.x
        )
        if slope <= 0:  # large prompts came out faster than small ones: one rate for all
            return 0.0, self.xy / self.xx
        base = (self.y - slope * self.x) / self.weight
        return (base, slope) if base >= 0 else (0.0, self.xy / self.xx)


class PrefillLines:
    """Fed by finished prefills and load reports; asked for every worker at every decision, so
    that lines are solved when they are fed."""

    def __init__(self) -> None:
        self._fleet = _Sums()
        self._fleet_line = self._fleet.line(_DEFAULT)
        self._own: dict[WorkerKey, _Sums] = {}
        self._said: dict[WorkerKey, tuple[float, float]] = {}
        """(ms per token, ms per token and 1024 tokens of context), as workers say."""
        self._speeds: dict[WorkerKey, PrefillSpeed] = {}
        """Of workers that have samples, or have said something."""

    def heard(self, worker: WorkerKey, token_ms: float, pair_ms: float) -> None:
        """What a worker's own steps cost; zeros: it has measured nothing."""
        said = (token_ms, pair_ms)
        if token_ms + pair_ms > 0 and _differ(said, self._said.get(worker, (0.0, 0.0))):
            self._said[worker] = said
            self._speeds[worker] = self._solve(worker)

    def add(self, worker: WorkerKey, num_tokens: int, took_ms: float, *, context: int = 0) -> None:
        """A finished prefill of so many uncached tokens after `context` cached ones."""
        if num_tokens < 1 or took_ms <= 0:
            return
        expected = self.speed_of(worker)
        expected_ms = expected.of(num_tokens, context)
        took_ms = min(max(took_ms, expected_ms / _SURPRISE), expected_ms * _SURPRISE)
        if (said := self._said.get(worker)) is not None:
            word = PrefillSpeed(DEFAULT_BASE_MS, *said)
            took_ms = min(took_ms, word.of(num_tokens, context) * _WAITING)
        linear_ms = max(0.0, took_ms - expected.pair_ms * pairs_of(num_tokens, context))
        for sums in (self._fleet, self._own.setdefault(worker, _Sums())):
            sums.fade()
            sums.add(num_tokens, linear_ms)
        self._fleet_line = self._fleet.line(_DEFAULT)
        self._speeds[worker] = self._solve(worker)

    def speed_of(self, worker: WorkerKey) -> PrefillSpeed:
        """The worker's line by now; one that is unknown has the fleet's."""
        return self._speeds.get(worker) or PrefillSpeed(*self._fleet_line, self._fleet_pair_ms())

    def is_measured(self, worker: WorkerKey) -> bool:
        """True where its line is its own."""
        return worker in self._speeds

    def forget(self, worker: WorkerKey) -> None:
        """The worker is gone."""
        self._own.pop(worker, None)
        self._said.pop(worker, None)
        self._speeds.pop(worker, None)

    def _fleet_pair_ms(self) -> float:
        """Of those that say; attention is left out of every sample's line by as much."""
        return fmean(pair_ms for _, pair_ms in self._said.values()) if self._said else 0.0

    def _solve(self, worker: WorkerKey) -> PrefillSpeed:
        token_ms, pair_ms = self._said.get(worker, (None, self._fleet_pair_ms()))
        prior = self._fleet_line if token_ms is None else (DEFAULT_BASE_MS, token_ms)
        return PrefillSpeed(*self._own.get(worker, _Sums()).line(prior), pair_ms)


def _differ(said: tuple[float, float], before: tuple[float, float]) -> bool:
    pairs = zip(said, before, strict=True)
    return any(abs(value - old) > _NEWS * old for value, old in pairs)
