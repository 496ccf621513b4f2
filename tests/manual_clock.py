"""A clock that a test turns by hand."""


class ManualClock:
    """Seconds, from 1000 on. A `Clock`; `sleep` turns it instead of waiting."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
