"""The section pools: backends, balancing, and what else holds for all requests to a pool."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from proxy.certificates import ClientTls
from proxy.config.addresses import BACKEND_URL, BackendUrl, backend_url, bracketed
from proxy.config.discover import read_discover
from proxy.config.fields import Field, Section
from proxy.config.health import read_health, read_outlier
from proxy.config.limits import read_limits
from proxy.config.names import NAMES, TOKENS, condition_instead, header_problem, is_name, is_token
from proxy.config.reading import Scalar
from proxy.config.tls import read_pool_tls
from proxy.config.values import Balance, HostRule, PoolConfig, Recipe
from proxy.config.waiting import Timeouts, read_retry, read_timeouts
from proxy.routing.backends import Backend
from proxy.routing.pools import MOST_LISTENERS, ListenRule, RingKey, State
from proxy.routing.queueing import USUAL_LIMITS
from proxy.routing.retries import ONE_REPEAT

_KEYS = (
    *("backends", "discover", "balance", "ring_key", "tasks", "sessions", "listen", "host"),
    *("health", "outlier", "timeouts", "retry", "limits", "comment_every"),
    "tls",
)
_BALANCES: tuple[Balance, ...] = get_args(Balance)
_STATES: tuple[State, ...] = get_args(State)
_LISTEN_RULES: tuple[ListenRule, ...] = get_args(ListenRule)
_HOST_RULES: tuple[HostRule, ...] = get_args(HostRule)
_RING_KEYS = "name, authorization, param:NAME, header:NAME"
_TAG_GROUP = "backend"
_HEAVIEST = 1000  # the ring makes dozens of points for each unit of weight


@dataclass(frozen=True, slots=True)
class ReadPool:
    """A pool as read, with its fields, for checks that need other sections."""

    field: Field
    ring_key_field: Field | None
    config: PoolConfig


@dataclass(frozen=True, slots=True)
class _Tasks:
    state: State = "local"
    search: bool = True
    owner_tag: re.Pattern[str] | None = None


def read_pools(field: Field | None) -> dict[str, ReadPool]:
    """`pools:`, all of them, also those with mistakes."""
    if field is None:
        return {}
    pools = {}
    for name, pool in field.named("pools by name", least=1).items():
        if not is_name(name):
            pool.problem(found="", message="not a name for a pool", allowed=NAMES)
        read = _pool(name, pool)
        if read is not None:
            pools[name] = read
    return pools


def _pool(name: str, field: Field) -> ReadPool | None:
    section = field.section(*_KEYS)
    if section is None:
        return None
    balance: Balance | None = section.read("balance", lambda balance: balance.choice(_BALANCES), None)
    tasks = section.read("tasks", _tasks, _Tasks())
    timeouts = section.read("timeouts", read_timeouts, Timeouts())
    discover = read_discover(section.get("discover"))
    backends = _backends(section)
    config = PoolConfig(
        name,
        backends,
        "least_in_flight" if balance is None else balance,
        ring_key=section.read("ring_key", _ring_key, None),
        owner_tag=tasks.owner_tag,
        host=section.read("host", lambda host: host.choice(_HOST_RULES), "preserve"),
        connect_timeout=timeouts.connect,
        head_timeout=timeouts.head,
        idle_timeout=timeouts.idle,
        owner_wait=timeouts.owner_wait,
        state=tasks.state,
        search=tasks.search,
        sticky=section.read("sessions", lambda sessions: sessions.choice(("sticky", "off")), "sticky") == "sticky",
        listen=section.read("listen", lambda listen: listen.choice(_LISTEN_RULES), "one"),
        tls=_tls(section, backends, discover),
        health=section.read("health", lambda health: read_health(health, _paths(backends, discover)), None),
        outlier=read_outlier(section.get("outlier")),
        retry=section.read("retry", read_retry, ONE_REPEAT),
        comment_every=section.read("comment_every", Field.duration, None),
        limits=section.read("limits", read_limits, USUAL_LIMITS),
        discover=discover,
    )
    if config.listen == "all" and len(config.backends) > MOST_LISTENERS:
        section.read("listen", lambda listen: _too_many(listen, len(config.backends)), None)
    # A balance that is wrong may have been meant to be ring: nothing is said about its key then.
    if balance == "ring" and "ring_key" not in section:
        section.require("ring_key", f"{_RING_KEYS}; `balance: ring` needs it")
    if balance != "ring" and (balance is not None or "balance" not in section):
        ring_key = section.get("ring_key")
        if ring_key is not None:
            ring_key.problem(
                message="only `balance: ring` has a key", allowed="`balance: ring` beside it, or no such key"
            )
    return ReadPool(field, section.get("ring_key"), config)


def _too_many(field: Field, backends: int) -> None:
    field.problem(
        found=f"all, and {backends} backends",
        message="every subscription would be opened at each of them",
        allowed=f"one; or all with at most {MOST_LISTENERS} backends",
    )


def _tls(section: Section, backends: Sequence[Backend], discover: Recipe | None) -> ClientTls | None:
    over_tls = [backend.tls for backend in backends] + ([] if discover is None else [discover.tls])
    return read_pool_tls(section.get("tls"), over_tls)


def _paths(backends: Sequence[Backend], discover: Recipe | None) -> set[str]:
    return {backend.path for backend in backends} | (set() if discover is None else {discover.path})


def _backends(section: Section) -> tuple[Backend, ...]:
    if "discover" in section and "backends" not in section:
        return ()
    field = section.require("backends", "a list of backends, at least one; or `discover`, where they are found")
    if field is None:
        return ()
    backends: list[Backend] = []
    lines: dict[str, int] = {}
    for item in field.items("URLs or {id, url, weight, drain}", least=1):
        backend = _backend(item)
        if backend is None:
            continue
        if backend.id in lines:
            item.problem(
                found=f"the id {backend.id!r} again, first in line {lines[backend.id]}",
                allowed="ids of their own: {id: NAME, url: URL}; the default is the URL's host:port",
            )
        lines.setdefault(backend.id, item.line)
        backends.append(backend)
    return tuple(backends)


def _backend(field: Field) -> Backend | None:
    if isinstance(field.node, Scalar):
        url = backend_url(_as_url(field))
        return None if url is None else _made(url, None, 1, drain=False)
    section = field.section("id", "url", "weight", "drain")
    if section is None:
        return None
    url_field = section.require("url", BACKEND_URL)
    url = None if url_field is None else backend_url(url_field)
    backend_id = section.read("id", _backend_id, None)
    weight = section.read("weight", lambda weight: weight.integer(1, _HEAVIEST), 1)
    drain = section.read("drain", Field.boolean, False)
    return None if url is None else _made(url, backend_id, weight, drain=drain)


def _as_url(field: Field) -> Field:
    """A backend that is only a URL stands where `backends[].url` does."""
    return replace(field, kind=f"{field.kind}.url")


def _made(url: BackendUrl, backend_id: str | None, weight: int, *, drain: bool) -> Backend:
    if backend_id is None:
        backend_id = f"{bracketed(url.host)}:{url.port}"
    path = "/mcp" if url.path is None else url.path
    return Backend(backend_id, url.host, url.port, path, weight, drain, url.tls)


def _backend_id(field: Field) -> str | None:
    allowed = "printable characters without spaces and `/`"
    text = field.text(allowed)
    if text is not None and ("/" in text or " " in text or not text.isprintable()):
        field.problem(allowed=allowed)
        return None
    return text


def _ring_key(field: Field) -> RingKey | None:
    text = field.text(_RING_KEYS)
    if text is None:
        return None
    kind, colon, name = text.partition(":")
    if text in ("name", "authorization"):
        return RingKey(text)
    if not colon or kind not in ("param", "header"):
        field.problem(allowed=_RING_KEYS)
        return None
    if not is_token(name):
        field.problem(message=f"not a name for a {kind}", allowed=f"{kind}:NAME, with {TOKENS}")
        return None
    reason = header_problem(name) if kind == "header" else ""
    if reason:
        instead = {"name": "name", "param": f"param:{name[len('Mcp-Param-') :]}"}.get(condition_instead(name), "")
        field.problem(message=f"can never be present: {reason}", allowed=_RING_KEYS, near=instead)
        return None
    return RingKey(kind, name.lower())


def _tasks(field: Field) -> _Tasks | None:
    section = field.section("state", "search", "owner_tag")
    if section is None:
        return None
    return _Tasks(
        section.read("state", lambda state: state.choice(_STATES), "local"),
        section.read("search", Field.boolean, True),
        section.read("owner_tag", _owner_tag, None),
    )


def _owner_tag(field: Field) -> re.Pattern[str] | None:
    text = field.text("a regular expression")
    pattern = None if text is None else field.compiled(re.compile, text)
    if pattern is not None and _TAG_GROUP not in pattern.groupindex:
        field.problem(message=f"no group {_TAG_GROUP}", allowed=f"(?P<{_TAG_GROUP}>...) around the backend's id")
        return None
    return pattern
