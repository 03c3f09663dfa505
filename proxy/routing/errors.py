"""Every failure the proxy answers for: its reason, status, JSON-RPC code, and whether anything was sent.

The reason is what clients read in `Mcp-Proxy-Error`, operators in `rejected_total{reason}`. A class is a row of the
table; `nothing_sent` says that the request cannot have reached a backend, so that another one may be tried.
"""

from typing import ClassVar


class FramingError(Exception):
    """A body does not end where two readers would agree it ends; whose it is, a request's or a response's, is for the
    caller to say."""


class ProxyError(Exception):
    """A request that the proxy answers itself. `str()` of it goes to the client: no ids, no addresses."""

    reason: ClassVar[str]
    status: ClassVar[int]
    code: ClassVar[int] = -32000
    modern_code: ClassVar[int | None] = None
    """JSON-RPC code for clients of 2026-07-28 and later, where it differs from `code`."""
    retry_after: ClassVar[int | None] = None
    """Seconds for the `Retry-After` field, or None for no such field."""
    nothing_sent: ClassVar[bool] = False
    backend_fault: ClassVar[bool] = False
    """True if it counts against the backend: enough of them in a row, and it is ejected."""

    def code_for(self, *, modern: bool) -> int:
        """The JSON-RPC code for a client of this era; legacy clients never see -32020 (they would switch era)."""
        return self.modern_code if modern and self.modern_code is not None else self.code


class DuplicateHeader(ProxyError):
    """A routing header came twice (MCP 2026-07-28, Streamable HTTP, Server Validation)."""

    reason = "duplicate_header"
    status = 400
    modern_code = -32020


class MalformedHeader(ProxyError):
    """A routing header that had to be read does not decode (Streamable HTTP, Value Encoding)."""

    reason = "malformed_header"
    status = 400
    modern_code = -32020


class BadRequest(ProxyError):
    """The request does not parse, or two parsers could frame it differently."""

    reason = "bad_request"
    status = 400


class Unsupported(ProxyError):
    """CONNECT or Upgrade."""

    reason = "unsupported"
    status = 501


class ForbiddenHost(ProxyError):
    """The Host field is not among the listener's allowed hosts."""

    reason = "forbidden_host"
    status = 421


class ForbiddenOrigin(ProxyError):
    """The Origin field is not among the listener's allowed origins (Streamable HTTP, Security & Endpoint)."""

    reason = "forbidden_origin"
    status = 403


class NoRoute(ProxyError):
    """No route's conditions are met."""

    reason = "no_route"
    status = 404


class SessionOwnerGone(ProxyError):
    """The session's backend is not of the reachable pools: the client has to initialize anew (Session Management)."""

    reason = "session_owner_gone"
    status = 404
    code = -32001


class HeadTooLarge(ProxyError):
    """The head is over a limit: bytes, fields, one Mcp-* value, or Mcp-Param-* fields."""

    reason = "head_too_large"
    status = 431


class NoBackend(ProxyError):
    """The pool has no backend that takes new work, or none is left to try."""

    reason = "no_backend"
    status = 503
    retry_after = 1


class OwnerDown(ProxyError):
    """The backend that owns the task cannot be reached; any other would call the task unknown."""

    reason = "owner_down"
    status = 503
    retry_after = 1


class OwnerUnknown(ProxyError):
    """Who owns the task could not be found out; any answer about it would be a guess."""

    reason = "owner_unknown"
    status = 503
    retry_after = 1


class Overloaded(ProxyError):
    """All that may be under way is, and nothing more may wait; or this process has no descriptor left to dial with."""

    reason = "overloaded"
    status = 503
    retry_after = 1
    nothing_sent = True


class RequestTimeout(ProxyError):
    """The client took too long to send its request (RFC 9110, 15.5.9)."""

    reason = "request_timeout"
    status = 408


class Draining(ProxyError):
    """The proxy is shutting down and can wait no longer."""

    reason = "draining"
    status = 503
    retry_after = 1


class ConnectFailed(ProxyError):
    """The backend refused the connection, or its name does not resolve."""

    reason = "connect_failed"
    status = 502
    nothing_sent = True
    backend_fault = True


class ConnectRefused(ConnectFailed):
    """Nobody listens at the backend's address: what it held in memory is gone."""


class ConnectTimeout(ProxyError):
    """The backend did not accept the connection in time."""

    reason = "connect_timeout"
    status = 504
    nothing_sent = True
    backend_fault = True


class HeadTimeout(ProxyError):
    """The backend had the whole request, and no head of a response came in time."""

    reason = "head_timeout"
    status = 504


class IdleTimeout(ProxyError):
    """Nothing passed for too long, either way, of a request or response that was under way."""

    reason = "idle_timeout"
    status = 504


class BackendClosed(ProxyError):
    """The backend closed the connection before its response was complete."""

    reason = "backend_closed"
    status = 502
    backend_fault = True


class BadResponse(ProxyError):
    """The backend's response does not parse, or two parsers could frame it differently."""

    reason = "bad_response"
    status = 502
