"""What a backend is: an address that serves MCP, known by its id."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Backend:
    """One MCP server. Its id is its identity: equal ids are the same backend, whatever else changed."""

    id: str
    host: str
    port: int
    path: str = "/mcp"
    weight: int = 1
    """Share of new work relative to the pool's other backends; at least 1."""
    drain: bool = False
    """Takes no new work; keeps serving what it owns."""
    tls: bool = False
    """True if it is spoken to over TLS."""
    name: str = ""
    """The name that it goes by, where `host` is one of the addresses found under a name; else ""."""
    discovered: bool = False
    """True if it was found, and is not in the configuration."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Backend) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def origin(self) -> str:
        """Where its URL begins, e.g. https://host:port."""
        return f"{'https' if self.tls else 'http'}://{self.authority}"

    @property
    def authority(self) -> str:
        """host:port as it stands in a Host field; IPv6 addresses in brackets (RFC 3986, 3.2.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def host_field(self) -> str:
        """What it is called in a Host field of its own."""
        return f"{self.name}:{self.port}" if self.name else self.authority
