"""The section pools: what holds for all requests to a pool."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from proxy.certificates import ClientTls
from proxy.config.backends import BACKENDS
from proxy.config.discover import DISCOVER, read_discover
from proxy.config.fields import Field
from proxy.config.forms import boolean, duration, mapping, or_mapping, text, words
from proxy.config.health import HEALTH, OUTLIER, read_health, read_outlier
from proxy.config.limits import LIMITS, read_limits
from proxy.config.names import (
    NAME_PATTERN,
    NAMES,
    TOKEN_PATTERN,
    TOKENS,
    condition_instead,
    header_problem,
    is_name,
    is_token,
)
from proxy.config.sections import Form, Key, Keys, Section, unread
from proxy.config.tasks import TASKS, Tasks, read_tasks
from proxy.config.tls import POOL_TLS, read_pool_tls
from proxy.config.values import Balance, HostRule, PoolConfig, Recipe
from proxy.config.waiting import RETRY, TIMEOUTS, Timeouts, read_retry, read_timeouts
from proxy.routing.backends import Backend
from proxy.routing.health import Health
from proxy.routing.outliers import USUAL, OutlierRule
from proxy.routing.pools import MOST_LISTENERS, ListenRule, RingKey

_BALANCES: tuple[Balance, ...] = get_args(Balance)
_LISTEN_RULES: tuple[ListenRule, ...] = get_args(ListenRule)
_HOST_RULES: tuple[HostRule, ...] = get_args(HostRule)
_RING_KEYS = "name, authorization, param:NAME, header:NAME"
_USUAL = PoolConfig("", ())


@dataclass(frozen=True, slots=True)
class ReadPool:
    """A pool as read, with its fields, for checks that need other sections."""

    field: Field
    ring_key_field: Field | None
    config: PoolConfig


def _ring_key(field: Field) -> RingKey | None:
    written = field.text(_RING_KEYS)
    if written is None:
        return None
    kind, colon, name = written.partition(":")
    if written in ("name", "authorization"):
        return RingKey(written)
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


_BACKENDS = Key(
    "backends",
    BACKENDS,
    (),
    "At least one, unless `discover` finds them.",
    "[http://10.0.0.11:8000/mcp, {id: b, url: 'http://10.0.0.12:8000/mcp'}]",
    without="none, where `discover` is given",
)
_DISCOVER: Key[Recipe, None] = Key(
    "discover", mapping(DISCOVER, read_discover), None, "Where (more) backends are found.", without="nowhere"
)
_BALANCE: Key[Balance, Balance] = Key(
    "balance",
    words(_BALANCES),
    _USUAL.balance,
    "Who gets a request that has no owner: the least busy, each in turn (both by weight), or the one that a hash of "
    "`ring_key` names, up to 1.25 times its share of what is under way. Of more than 32, the least busy of the next "
    "four in turn.",
    "ring",
)
_RING_KEY = Key(
    "ring_key",
    text(
        "`name`, `authorization`, `param:NAME`, `header:NAME`",
        _ring_key,
        f"^(?:name|authorization|(?:param|header):{TOKEN_PATTERN})$",
        bare=False,
    ),
    None,
    "What `ring` hashes: `Mcp-Name`, `Authorization`, `Mcp-Param-NAME` or a header field. Required with "
    "`balance: ring`, and only there. Requests without it go to the least busy backend.",
    "header:X-Tenant",
)
_TASKS = Key("tasks", mapping(TASKS, read_tasks), Tasks(), "Tasks and their owners.")
_SESSION_RULES = ("sticky", "off")
_SESSIONS = Key(
    "sessions",
    words(_SESSION_RULES),
    _SESSION_RULES[0],
    "`sticky`: a session of a client of 2025-11-25 or older stays on its backend, by a tag before its id. `off`: ids "
    "pass as they are and every request is balanced, for servers that share their sessions.",
    "off",
)
_LISTEN: Key[ListenRule, ListenRule] = Key(
    "listen",
    words(_LISTEN_RULES),
    _USUAL.listen,
    "`subscriptions/listen` goes to `one` backend, which leaves out what it does not know, or to `all`, their event "
    f"streams merged; that is for at most {MOST_LISTENERS} backends.",
    "all",
)
_HOST: Key[HostRule, HostRule] = Key(
    "host",
    words(_HOST_RULES),
    _USUAL.host,
    "Backends get the client's `Host` field, or (`backend`) their own `host:port`.",
    "backend",
)
_HEALTH: Key[Health, None] = Key(
    "health", mapping(HEALTH, unread), None, "Probes.", without="no probes, every backend counts as up"
)
_OUTLIER: Key[OutlierRule, OutlierRule] = Key(
    "outlier",
    or_mapping(boolean(), "`off`", OUTLIER, unread),
    USUAL,
    "Who fails clients gets no new work for a while.",
)
_TIMEOUTS = Key("timeouts", mapping(TIMEOUTS, read_timeouts), Timeouts(), "How long is waited.")
_RETRY = Key(
    "retry",
    or_mapping(boolean(), "`off`", RETRY, read_retry),
    _USUAL.retry,
    "How often a request is sent that changes nothing.",
)
_LIMITS = Key("limits", mapping(LIMITS, read_limits), _USUAL.limits, "What is under way at once.")
_COMMENT_EVERY = Key(
    "comment_every",
    duration(),
    None,
    "An event stream that was quiet for so long gets a comment, which keeps proxies in between from closing it.",
    "15s",
    without="never",
)
_TLS: Key[ClientTls, None] = Key("tls", mapping(POOL_TLS, unread), None, "TLS towards backends.")
POOL = Keys(
    "A set of interchangeable backends. Every pool must be in a route.",
    (
        *(_BACKENDS, _DISCOVER, _BALANCE, _RING_KEY, _TASKS, _SESSIONS, _LISTEN, _HOST),
        *(_HEALTH, _OUTLIER, _TIMEOUTS, _RETRY, _LIMITS, _COMMENT_EVERY, _TLS),
    ),
    {
        "anyOf": [{"required": ["backends"]}, {"required": ["discover"]}],
        "if": {"properties": {"balance": {"const": "ring"}}, "required": ["balance"]},
        "then": {"required": ["ring_key"]},
        "else": {
            "if": {"properties": {"balance": {"enum": [word for word in _BALANCES if word != "ring"]}}},
            "then": {"properties": {"ring_key": False}},
        },
    },
)


def read_pools(field: Field) -> dict[str, ReadPool]:
    """`pools:`, all of them, also those with mistakes."""
    pools = {}
    for name, pool in field.named("pools by name", least=1).items():
        if not is_name(name):
            pool.problem(found="", message="not a name for a pool", allowed=NAMES)
        read = _pool(name, pool)
        if read is not None:
            pools[name] = read
    return pools


def _pool(name: str, field: Field) -> ReadPool | None:
    section = POOL.section(field)
    if section is None:
        return None
    balance_field, outlier_field = section.get("balance"), section.get("outlier")
    balance = None if balance_field is None else _BALANCE.form.read(balance_field)
    tasks, timeouts, discover = section.take(_TASKS), section.take(_TIMEOUTS), section.take(_DISCOVER)
    if "discover" not in section:
        section.require("backends", "a list of backends, at least one; or `discover`, where they are found")
    backends = section.take(_BACKENDS)
    config = PoolConfig(
        name,
        backends,
        _BALANCE.default if balance is None else balance,
        ring_key=section.take(_RING_KEY),
        owner_tag=tasks.owner_tag,
        host=section.take(_HOST),
        connect_timeout=timeouts.connect,
        head_timeout=timeouts.head,
        idle_timeout=timeouts.idle,
        owner_wait=timeouts.owner_wait,
        state=tasks.state,
        search=tasks.search,
        sticky=section.take(_SESSIONS) == "sticky",
        listen=section.take(_LISTEN),
        tls=_tls(section, backends, discover),
        health=section.take(_HEALTH, lambda health: read_health(health, _paths(backends, discover))),
        outlier=_OUTLIER.default if outlier_field is None else read_outlier(outlier_field),
        retry=section.take(_RETRY),
        comment_every=section.take(_COMMENT_EVERY),
        limits=section.take(_LIMITS),
        discover=discover,
    )
    listen = section.get("listen")
    if listen is not None and config.listen == "all" and len(config.backends) > MOST_LISTENERS:
        _too_many(listen, len(config.backends))
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


POOLS = Form(
    "mapping of pools by name",
    {"propertyNames": {"pattern": f"^{NAME_PATTERN}$"}, "minProperties": 1},
    read_pools,
    keys=POOL,
    place=".*",
)
