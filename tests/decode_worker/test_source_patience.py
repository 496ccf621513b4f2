"""Which words of a prefill worker count as progress of one request."""

from decode_worker.source_patience import STANDSTILLS, SourcePatience
from protos import handoff_pb2
from tests.manual_clock import ManualClock

LIMIT_S = 3.0


class Waiting:
    """A source that says the same word in every tick."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.patience = SourcePatience(LIMIT_S, clock=self.clock)

    def say(self, **event) -> None:
        self.patience.heard(handoff_pb2.PrefillEvent(**event))

    def say_progress(self, tokens_ahead: int, *, in_long_step: bool = False) -> None:
        progress = handoff_pb2.Progress(tokens_ahead=tokens_ahead, in_long_step=in_long_step)
        self.say(progress=progress)

    def tick(self) -> str | None:
        self.clock.advance(self.patience.interval_s)
        return self.patience.tick()


def until_given_up(waiting: Waiting, *, most_s: float, in_long_step: bool = False) -> float:
    """Seconds of equal words until the source is given up."""
    began_s = waiting.clock()
    while waiting.clock() - began_s < most_s:
        waiting.say_progress(1000, in_long_step=in_long_step)
        if waiting.tick() is not None:
            break
    return waiting.clock() - began_s


def test_a_source_that_lives_and_does_not_come_closer_to_the_prompt_is_given_up() -> None:
    waiting = Waiting()
    waited_s = until_given_up(waiting, most_s=100.0)
    assert STANDSTILLS * LIMIT_S <= waited_s < 2 * STANDSTILLS * LIMIT_S
    why = waiting.patience.tick()
    assert why is not None and "1000 prompt tokens are to be computed" in why
    assert waiting.patience.num_progress > 5 and waiting.patience.stage == "nothing said"


def test_a_long_queue_that_shortens_is_waited_for() -> None:
    waiting = Waiting()
    for tokens_ahead in range(5000, 0, -10):
        waiting.say_progress(tokens_ahead)
        assert waiting.tick() is None


def test_a_queue_that_grows_before_the_prompt_is_no_progress() -> None:
    waiting = Waiting()
    ends = []
    for tokens_ahead in range(1, 200):
        waiting.say_progress(tokens_ahead)
        ends.append(waiting.tick())
    assert ends[-1] is not None


def test_a_long_step_is_waited_for_since_nothing_can_be_counted_in_it() -> None:
    assert until_given_up(Waiting(), most_s=60.0, in_long_step=True) >= 60.0


def test_a_word_about_the_prompt_itself_counts_whatever_the_queue_says() -> None:
    waiting = Waiting()
    until_given_up(waiting, most_s=STANDSTILLS * LIMIT_S - 1)
    waiting.say(accepted=handoff_pb2.Accepted())
    assert until_given_up(waiting, most_s=STANDSTILLS * LIMIT_S - 1) >= STANDSTILLS * LIMIT_S - 1
    assert waiting.patience.stage == "accepted"


def test_silence_has_a_limit_of_its_own() -> None:
    waiting = Waiting()
    began_s = waiting.clock()
    while (why := waiting.tick()) is None:
        assert waiting.clock() < began_s + 2 * LIMIT_S
    assert "has made no progress for 3.0 s" in why
