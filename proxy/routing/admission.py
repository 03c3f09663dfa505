"""Is this Host, this Origin allowed at the listener? (MCP Streamable HTTP, Security & Endpoint: DNS rebinding.)"""

from collections.abc import Collection

from proxy.routing.errors import ForbiddenHost, ForbiddenOrigin


class Admission:
    """The listener's own check. None: not checked here, since the backends see Host and Origin as they came.

    A host without port allows any port. Compared in lower case.
    """

    def __init__(self, *, hosts: Collection[str] | None, origins: Collection[str] | None) -> None:
        self.checks = hosts is not None or origins is not None
        """False where everything is admitted."""
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._origins = None if origins is None else frozenset(origin.lower() for origin in origins)

    def check(self, *, host: bytes, name: str, origin: str | None) -> None:
        """`host`: the Host field; `name`: its name in lower case. Raises ForbiddenHost, ForbiddenOrigin."""
        if self._hosts is not None and name not in self._hosts and host.lower().decode("latin-1") not in self._hosts:
            raise ForbiddenHost("this Host is not allowed here")
        if self._origins is not None and origin is not None and origin.lower() not in self._origins:
            raise ForbiddenOrigin("this Origin is not allowed here")
