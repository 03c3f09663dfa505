"""What is too long for an exchange that has reached a backend: looked at now and then, never timed."""

from proxy.routing.errors import HeadTimeout, IdleTimeout, ProxyError
from proxy.routing.headers import RoutingHeaders
from proxy.routing.retries import must_be_answered
from proxy.wire.client import ClientConnection
from proxy.wire.listening import Listening
from proxy.wire.quiet import Quiet, pause_between_looks
from proxy.wire.relay import Relay


class Tending:
    """One attempt's time. Begins with the first look at it."""

    __slots__ = ("_client", "_quiet", "_request", "look_at")

    def __init__(self, client: ClientConnection, request: RoutingHeaders) -> None:
        self._client = client
        self._request = request
        self._quiet: Quiet | None = None
        self.look_at = 0.0
        """When to look again; monotonic, in seconds."""

    def look(self, relay: Relay | Listening, now: float, *, bytes_in: int, received: bool) -> ProxyError | None:
        """Why it has to end, if it has; a stream that is quiet is sent a comment.

        `bytes_in`: of the request's body, as they came from the client; `received`: it came whole.
        """
        lane, client = relay.lane, self._client
        limit = lane.head_timeout
        if must_be_answered(self._request):
            limit = min(limit, lane.owner_wait)  # there may be others to ask
        to_backend = 0 if relay.connection is None else relay.connection.unsent
        to_client = client.unsent
        passed = bytes_in + relay.bytes_out - to_backend - to_client
        waits = received and not relay.status and not to_backend
        quiet = self._quiet
        if quiet is None:
            quiet = self._quiet = Quiet(now, passed=passed, waits=waits)
        self.look_at = now + pause_between_looks(limit, lane.idle_timeout, lane.comment_every)
        seconds = quiet.look(now, passed=passed, waits=waits)
        if waits:
            return HeadTimeout("the backend did not begin to answer in time") if seconds >= limit else None
        if seconds >= lane.idle_timeout:
            return IdleTimeout("nothing was sent or received for too long")
        if relay.streamed and not to_client and quiet.take_comment(now, every=lane.comment_every):
            relay.comment()
        return None
