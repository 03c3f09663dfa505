"""How an exchange ends: the answer that is the proxy's own, and the record of what happened."""

from proxy.records import RequestRecord
from proxy.routing.errors import BadRequest, HeadTooLarge, Overloaded, OwnerDown, ProxyError
from proxy.routing.ownership import short_digest
from proxy.wire.approach import Approach
from proxy.wire.client import ClientConnection
from proxy.wire.listening import Listening
from proxy.wire.relay import Relay
from proxy.wire.request_frame import RequestHead
from proxy.wire.response_head import error_response


def answer(error: ProxyError, client: ClientConnection, head: RequestHead, *, received: bool) -> bool:
    """Answers the client with an error; True if its connection is kept. `received`: the request came whole."""
    frame = head.frame
    framed = not isinstance(error, BadRequest | HeadTooLarge)
    keep_alive = frame.keep_alive and received and framed and not client.retiring
    response = error_response(
        error,
        modern=head.routing.modern,
        keep_alive=keep_alive,
        http10=frame.http10,
        with_body=frame.verb != b"HEAD",
    )
    client.write(response)
    return keep_alive


def record_of(
    head: RequestHead,
    peer: str,
    approach: Approach,
    relay: Relay | Listening | None,
    status: int,
    error: str,
    bytes_in: int,
    now: float,
) -> RequestRecord:
    """What happened. `status`: what the client was answered with; `error`: a reason, "" without; `bytes_in`: of the
    request's body."""
    frame = head.frame
    kind, backend_status, first_byte, bytes_out, streamed, outcome = frame.kind, 0, -1.0, 0, False, "served"
    if relay is not None:
        backend_status, bytes_out, streamed, outcome = relay.status, relay.bytes_out, relay.streamed, relay.outcome
        if relay.first_byte >= 0:
            first_byte = relay.first_byte - approach.started
    task, destination = approach.task, approach.destination
    route = pool = backend = source = ""
    if destination is None:
        outcome = ""
    else:
        choice = destination.choice
        route, pool = destination.route.name, destination.lane.pool.name
        backend, source = choice.member.backend.id, choice.source
        if error == OwnerDown.reason:
            outcome = error
        elif error == Overloaded.reason:  # it was sent to none
            backend = source = outcome = ""
        if destination.kind == "round":
            kind = "round"
    return RequestRecord(
        frame.label,
        head.routing.verb,
        status,
        route,
        pool,
        backend,
        kind,
        source,
        outcome,
        backend_status,
        now - approach.started,
        first_byte,
        bytes_in,
        bytes_out,
        error,
        peer,
        "" if task is None else short_digest(task),
        streamed,
    )
