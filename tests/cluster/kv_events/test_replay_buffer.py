"""What a publisher keeps for those who missed some."""

from cluster.kv_events.replay_buffer import ReplayBuffer


def test_the_oldest_messages_go_when_there_are_too_many_or_they_are_too_large() -> None:
    buffer = ReplayBuffer(max_messages=3, max_bytes=100)
    for number in range(5):
        buffer.add(number, b"x" * 10)
    assert [number for number, _ in buffer.since(0)] == [2, 3, 4]
    assert [number for number, _ in buffer.since(4)] == [4]
    buffer.add(5, b"x" * 85)
    assert [number for number, _ in buffer.since(0)] == [4, 5]
    assert buffer.num_bytes == 95


def test_the_newest_message_is_kept_however_large_it_is() -> None:
    buffer = ReplayBuffer(max_bytes=100)
    buffer.add(0, b"x")
    buffer.add(1, b"x" * 1000)
    assert buffer.since(0) == [(1, b"x" * 1000)]
    buffer.add(2, b"y")
    assert buffer.since(0) == [(2, b"y")]
    assert buffer.num_bytes == 1
