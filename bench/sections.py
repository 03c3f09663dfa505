"""PURE: the loads of the whole measurement, and what is measured under each."""

from dataclasses import dataclass, replace

from bench.targets import Variant

DIRECT = "direct"
EVERYBODY = ("proxy", "nginx", "haproxy", "envoy", "aiohttp")


@dataclass(frozen=True, slots=True)
class Section:
    """Targets that are compared under one load, by their names; `key` is the section's name, `short` that in a drawing.

    `unit`: what the load consists of, each of which costs CPU time. `note`: what a reader must know of it.
    """

    key: str
    title: str
    short: str
    load: str
    connections: int
    targets: tuple[str, ...] = EVERYBODY
    unit: str = "request"
    note: str = ""
    tls: bool = False


SECTIONS = (
    Section(
        "calls-1",
        "Small calls, 1 connection",
        "Small calls, 1 connection",
        "tools-call",
        1,
        (DIRECT, *EVERYBODY),
        note="`direct` is the load generator at a backend, with nothing between them; its CPU time is the backend's.",
    ),
    Section("calls-32", "Small calls, 32 connections", "Small calls, 32 connections", "tools-call", 32),
    Section("calls-256", "Small calls, 256 connections", "Small calls, 256 connections", "tools-call", 256),
    Section(
        "tasks-get",
        "`tasks/get` of a known task, 32 connections",
        "tasks/get of a known task",
        "tasks-get",
        32,
        note="Only `proxy` and `aiohttp` send the poll to the backend that made the task; the others hash its id.",
    ),
    Section(
        "create-tasks",
        "Calls that create a task, 32 connections",
        "Calls that create a task",
        "create-tasks",
        32,
        note="Only `proxy` and `aiohttp` read the answer, and know the task's owner before the client has its id.",
    ),
    Section(
        "events",
        "Event streams, 32 at a time",
        "Event streams",
        "events",
        32,
        unit="event",
        note="50 events of about 250 bytes for each call, one every 5 ms; a fiftieth of the request is in each. "
        "The times are those from the backend to the client.",
    ),
    Section("bodies", "64 KiB to the backend and 64 KiB back, 16 connections", "64 KiB both ways", "bodies", 16),
    Section(
        "connections",
        "A new connection for every request, 16 clients",
        "New connections",
        "connections",
        16,
        note="The times include connecting.",
    ),
    Section(
        "tls",
        "TLS on the listener, small calls, 32 connections",
        "TLS on the listener",
        "tools-call",
        32,
        ("proxy-tls", "nginx-tls", "haproxy-tls"),
        note="Connections stay; handshakes are not in it.",
        tls=True,
    ),
    Section(
        "workers",
        "Two workers beside one, small calls, 32 connections",
        "Two workers beside one",
        "tools-call",
        32,
        ("proxy", "proxy-2-workers"),
        note="The CPU time of all processes of the proxy, the supervisor's included.",
    ),
    Section(
        "scale",
        "1,000 backends and 1,000 routes beside 4 and 4, small calls, 32 connections",
        "1,000 backends and routes beside 4",
        "tools-call",
        32,
        ("proxy-4", "proxy-1000-routes", "proxy-1000-backends", "proxy-1000", "nginx", "nginx-1000-backends"),
        note="Of the 1,000 routes, 200 are for the names called, evenly spread; the others are exact names and globs. "
        "How much work a request is there, in calls and instructions, is in `bench/work.json`.",
    ),
)

FEW, MANY = 4, 1000
# Those of the names above that are more than the name of their kind. Certificates come with the run.
VARIANTS = (
    Variant("proxy", "proxy-tls"),
    Variant("nginx", "nginx-tls"),
    Variant("haproxy", "haproxy-tls"),
    Variant("proxy", "proxy-2-workers", workers=2),
    Variant("proxy", "proxy-4", routes=FEW),
    Variant("proxy", "proxy-1000-routes", routes=MANY),
    Variant("proxy", "proxy-1000-backends", routes=FEW),
    Variant("proxy", "proxy-1000", routes=MANY),
    Variant("nginx", "nginx-1000-backends"),
)
# The names of those whose pool has MANY backends; all other pools have FEW.
LARGE = ("proxy-1000-backends", "proxy-1000", "nginx-1000-backends")


def measurable(sections: tuple[Section, ...], names: frozenset[str]) -> list[Section]:
    """The sections with those of their targets that there are; without those that have none."""
    found = []
    for section in sections:
        targets = tuple(target for target in section.targets if target in names)
        if targets and targets != (DIRECT,):
            found.append(replace(section, targets=targets))
    return found
