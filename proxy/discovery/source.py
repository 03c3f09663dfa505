"""The seam of discovery: what a source of backends gives, and the one way in which it fails."""

from collections.abc import AsyncGenerator
from typing import Literal, Protocol, TypeAlias

from proxy.routing.backends import Backend

Found: TypeAlias = tuple[Backend, ...]
"""A complete set: all backends there are now, each id once, in an order that depends on nothing but them."""
Reason = Literal["timeout", "servfail", "no_resolver", "dns_error", "no_file", "unreadable", "malformed"]
"""Why a source could not tell. Few: they become labels."""


class DiscoveryFailure(Exception):
    """A source cannot tell now which backends there are; the text says why. What it told last may still be right."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class DiscoverySource(Protocol):
    """Where backends come from.

    A set is complete each time, never a difference, and is given after every look, whether or not it is another: how
    often a backend was missing is for the caller to count. That nobody is there is an answer like any other. The pauses
    between looks are the source's own.
    """

    def watch(self) -> AsyncGenerator[Found, None]:
        """Gives the set now, and again and again. Never ends; raises DiscoveryFailure alone.

        After that the caller keeps the last set, and watches anew after a pause. It closes what it leaves.
        """
        ...
