"""What takes too long once a backend is reached, told by looks in between."""

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.routing.headers import RoutingHeaders
from proxy.wire.destination import Lane
from proxy.wire.tending import Tending
from tests.wire.directories import asked, pool_of


class Scene:
    """An attempt at a backend: a head in 60 s, bytes every 100 s, comments every 15 s, owners awaited for 10 s."""

    def __init__(self, request: RoutingHeaders | None = None) -> None:
        self.comments = 0
        self.connection = SimpleNamespace(unsent=0)
        lane = Lane(
            pool_of("agents", "a"),
            {},
            own_host=False,
            owner_wait=10.0,
            head_timeout=60.0,
            idle_timeout=100.0,
            comment_every=15.0,
        )
        self.relay: Any = SimpleNamespace(
            lane=lane, connection=self.connection, bytes_out=0, status=0, streamed=False, comment=self._comment
        )
        client: Any = SimpleNamespace(unsent=0)
        self.client = client
        self._tending = Tending(client, asked("tools/list") if request is None else request)

    def _comment(self) -> None:
        self.comments += 1

    def ends(self, *times: float, bytes_in: int = 0, received: bool = True) -> list[str]:
        """What each look says: "" or a reason."""
        found = [self._tending.look(self.relay, now, bytes_in=bytes_in, received=received) for now in times]
        return ["" if error is None else error.reason for error in found]


def test_an_answer_has_to_begin_in_time() -> None:
    assert Scene().ends(5.0, 64.9, 65.0) == ["", "", "head_timeout"]


def test_discovery_waits_no_longer_than_for_an_owner_since_others_may_answer() -> None:
    assert Scene(asked("server/discover")).ends(5.0, 14.9, 15.0) == ["", "", "head_timeout"]


def test_the_time_for_the_head_begins_when_the_request_is_out() -> None:
    scene = Scene()
    assert scene.ends(0.0, 70.0, received=False) == ["", ""]
    assert scene.ends(80.0) == [""]
    scene.connection.unsent = 5
    assert scene.ends(130.0, bytes_in=5) == [""]
    scene.connection.unsent = 0
    assert scene.ends(140.0, 199.0, 200.0, bytes_in=5) == ["", "", "head_timeout"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_body_or_an_answer_that_stands_still_ends(begun: bool) -> None:
    scene = Scene()
    scene.relay.status = 200 * begun
    assert scene.ends(0.0, 99.0, received=begun) == ["", ""]
    scene.relay.bytes_out += begun
    assert scene.ends(99.5, 199.0, 200.0, bytes_in=not begun, received=begun) == ["", "", "idle_timeout"]


def test_what_the_client_does_not_take_has_not_passed() -> None:
    scene = Scene()
    scene.relay.status = 200
    assert scene.ends(0.0) == [""]
    scene.relay.bytes_out = scene.client.unsent = 50
    assert scene.ends(60.0, 100.0) == ["", "idle_timeout"]


def test_a_quiet_stream_gets_comments_unless_the_client_takes_nothing() -> None:
    scene = Scene()
    scene.relay.status, scene.relay.streamed = 200, True
    scene.ends(0.0, 14.0)
    assert scene.comments == 0
    scene.ends(15.0, 16.0, 30.0)
    assert scene.comments == 2
    scene.relay.bytes_out = scene.client.unsent = 9
    scene.ends(50.0)
    assert scene.comments == 2


def test_nothing_but_a_stream_gets_comments() -> None:
    scene = Scene()
    scene.relay.status = 200
    scene.ends(0.0, 20.0, 40.0)
    assert scene.comments == 0


def test_the_next_look_is_not_before_it_could_tell_something() -> None:
    scene = Scene()
    scene.ends(7.0)
    assert 7.5 <= scene._tending.look_at <= 8.0, "a sixteenth of the shortest limit"
