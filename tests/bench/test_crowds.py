"""Small crowds through real processes: idle streams cost little and hear an event, slow clients hold up nobody."""

from bench import idle_streams, slow_clients


def test_idle_streams_cost_little_and_hear_an_event_soon() -> None:
    found = idle_streams.run(300)
    assert found.streams == 300
    assert found.bytes_each < 16 * 1024  # thousands take less than 10 KiB each; the first ones make their pool grow
    assert found.event_seconds < 2.0


def test_slow_clients_do_not_hold_up_the_others() -> None:
    found = slow_clients.run(slow=150, slices=2, seconds=0.4, connections=4)
    assert found.comings == 2 * 150  # nobody was cut off so soon
    assert found.ratio < 6.0  # a few slices on a busy machine; without bounds it is in the hundreds
