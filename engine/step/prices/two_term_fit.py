"""What two things cost of which only the sum is measured: fitted, by samples of both."""

from __future__ import annotations

_DECAY = 0.98
"""Of a sample's weight with each newer one: the last fifty steps count."""
_LEAN = 0.01
"""How far the second term of a fit leans to zero: what cannot be told apart goes to the first."""
_DIFFERENT = 0.02
"""Of the squared cosine between the terms: a batch that varied by some 15 percent."""


class TwoTermFit:
    """Least squares of y = a * u + b * v, with a and b at least 0; older samples fade."""

    __slots__ = ("_uu", "_uv", "_uy", "_vv", "_vy", "a", "b")

    def __init__(self) -> None:
        self._uu = self._uv = self._vv = self._uy = self._vy = 0.0
        self.a = self.b = 0.0

    def add(self, u: float, v: float, y: float) -> None:
        """One sample; `a` and `b` are new afterwards."""
        self._uu = _DECAY * self._uu + u * u
        self._uv = _DECAY * self._uv + u * v
        self._vv = _DECAY * self._vv + v * v
        self._uy = _DECAY * self._uy + u * y
        self._vy = _DECAY * self._vy + v * y
        self.a, self.b = self._solve()

    @property
    def tells_apart(self) -> bool:
        """True when the samples differ enough to tell the second term from the first."""
        both = self._uu * self._vv
        return both > 0 and 1 - self._uv * self._uv / both > _DIFFERENT

    def of(self, u: float, v: float) -> float:
        """The fitted y; 0 before the first sample."""
        return self.a * u + self.b * v

    def _solve(self) -> tuple[float, float]:
        vv = self._vv * (1 + _LEAN)
        determinant = self._uu * vv - self._uv * self._uv
        if determinant <= 0 or not vv:
            return self._uy / self._uu, 0.0
        a = (self._uy * vv - self._vy * self._uv) / determinant
        b = (self._vy * self._uu - self._uy * self._uv) / determinant
        if b < 0:
            return self._uy / self._uu, 0.0
        return (a, b) if a >= 0 else (0.0, self._vy / self._vv)
