"""What happened to one request: the single value that metrics and access log are told."""

from dataclasses import dataclass

KNOWN_METHODS = frozenset(
    {
        "server/discover",
        "initialize",
        "ping",
        "tools/list",
        "tools/call",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "resources/subscribe",
        "resources/unsubscribe",
        "completion/complete",
        "logging/setLevel",
        "subscriptions/listen",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
    }
)
"""MCP methods that get a label of their own; clients may send any text, and labels must stay few."""

CLIENT_GONE = 499
"""Stands for the status when the client left before a response began (nginx's number for it)."""


@dataclass(slots=True)
class RequestRecord:
    """One request, from its head to its end. Times in seconds, sizes in bytes of body."""

    method: str
    """The Mcp-Method if known, else `other`; `other` for legacy requests too, whose header nobody checks."""
    verb: str
    status: int
    """The status sent to the client, or CLIENT_GONE."""
    route: str
    pool: str
    backend: str
    """Empty where none was chosen, as with route and pool."""
    kind: str
    """`task`, `session`, `round` or `none`: whose owner was asked for."""
    source: str
    """What named the backend: pin, tag, search, ring or balance; empty where none was chosen."""
    outcome: str
    """What came of the choice; empty where no backend was chosen.

    served; unknown: the backend does not know the task; conflict: it made a task whose id another one owns already;
    owner_down.
    """
    backend_status: int
    """The status the backend answered, 0 for none."""
    duration: float
    first_byte: float
    """Seconds from the head to the response head; negative for none."""
    bytes_in: int
    bytes_out: int
    error: str
    """The reason of the proxy's own error, `client_gone` when the client left early, else empty."""
    client: str
    """Address of the client, without port."""
    task: str
    """Short digest of the task id, or empty."""
    streamed: bool
    """True for a response of server-sent events."""


def refusal(client: str, reason: str, status: int) -> RequestRecord:
    """A request without a readable head, answered at once by the proxy itself."""
    return RequestRecord("other", "", status, "", "", "", "none", "", "", 0, 0.0, -1.0, 0, 0, reason, client, "", False)
