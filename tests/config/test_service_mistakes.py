"""Mistakes in listen, admin, workers, pins, log and drain: line, full path, what was found, what is allowed."""

import pytest

from proxy.config import parse
from tests.config.samples import FULL, mistakes, with_pool, with_top

UNIT = "a number with a unit (ms, s, m or h), such as 250ms, 1.5s or 10m"
HOSTS = "a host name or address, with or without :PORT, IPv6 in brackets; no wildcards"
ORIGINS = "SCHEME://HOST[:PORT], without a path; no wildcards"
REDIS_URL = "redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or unix://[[USER]:PASSWORD@]/PATH[?db=DATABASE]"
ADDRESS = "HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            "lgo: {}",
            "lgo: unknown key; allowed: listen, admin, workers, pools, routes, pins, log, drain; did you mean 'log'?",
        ),
        ("zzzz: {}", "zzzz: unknown key; allowed: listen, admin, workers, pools, routes, pins, log, drain"),
        ("listen: 8080", f"listen: found '8080'; allowed: {ADDRESS}"),
        ("listen: ':8080'", f"listen: found ':8080'; allowed: {ADDRESS}"),
        ("listen: 127.0.0.1", f"listen: found '127.0.0.1'; allowed: {ADDRESS}"),
        ("listen: 127.0.0.1:65536", f"listen: found '127.0.0.1:65536'; allowed: {ADDRESS}"),
        ("listen: 127.0.0.300:80", f"listen: found '127.0.0.300:80'; allowed: {ADDRESS}"),
        ("listen: '::1:8080'", f"listen: found '::1:8080'; allowed: {ADDRESS}"),
        ("listen: '[::1%eth0]:8080'", f"listen: found '[::1%eth0]:8080'; allowed: {ADDRESS}"),
        ("listen: {address: '*:80'}", f"listen.address: found '*:80'; allowed: {ADDRESS}"),
        ("listen: {address: }", f"listen.address: found nothing; allowed: {ADDRESS}"),
        (
            "listen: [a]",
            "listen: found a list; allowed: a mapping with address, allowed_hosts, allowed_origins, trusted_proxies, "
            "tls, limits",
        ),
        ("listen: {allowed_hosts: a}", "listen.allowed_hosts: found 'a'; allowed: a list of hosts, at least one"),
        (
            "listen: {allowed_hosts: []}",
            "listen.allowed_hosts: found an empty list; allowed: a list of hosts, at least one",
        ),
        ("listen: {allowed_hosts: [a, '*']}", f"listen.allowed_hosts[1]: found '*'; allowed: {HOSTS}"),
        ("listen: {allowed_hosts: ['::1']}", f"listen.allowed_hosts[0]: found '::1'; allowed: {HOSTS}"),
        ("listen: {allowed_hosts: ['a:0']}", f"listen.allowed_hosts[0]: found 'a:0'; allowed: {HOSTS}"),
        ("listen: {allowed_hosts: ['http://a']}", f"listen.allowed_hosts[0]: found 'http://a'; allowed: {HOSTS}"),
        ("listen: {allowed_hosts: ['a b']}", f"listen.allowed_hosts[0]: found 'a b'; allowed: {HOSTS}"),
        ("listen: {allowed_origins: [a]}", f"listen.allowed_origins[0]: found 'a'; allowed: {ORIGINS}"),
        (
            "listen: {allowed_origins: ['http://a/']}",
            f"listen.allowed_origins[0]: found 'http://a/'; allowed: {ORIGINS}",
        ),
        (
            "listen: {trusted_proxies: [10.0.0.1/8]}",
            "listen.trusted_proxies[0]: found '10.0.0.1/8'; allowed: an IP address, or a network such as 10.0.0.0/8; "
            "did you mean '10.0.0.0/8'?",
        ),
        (
            "listen: {trusted_proxies: [lan]}",
            "listen.trusted_proxies[0]: found 'lan'; allowed: an IP address, or a network such as 10.0.0.0/8",
        ),
        (
            "admin: 0.0.0.0:9901",
            "admin.token: missing: 0.0.0.0 can be reached from other machines; allowed: a token, as in "
            "{address: HOST:PORT, token: '${ADMIN_TOKEN}'}, or an address on loopback",
        ),
        (
            "admin: {address: 'host:9901'}",
            "admin.token: missing: host can be reached from other machines; allowed: a token, as in "
            "{address: HOST:PORT, token: '${ADMIN_TOKEN}'}, or an address on loopback",
        ),
        ("admin: 127.0.0.1:8080", "admin: found port 8080, as in listen; allowed: a port of its own"),
        ("admin: {tokn: x}", "admin.tokn: unknown key; allowed: address, token; did you mean 'token'?"),
        (
            "admin: {token: 'sesame open'}",
            "admin.token: found a value that is not shown; allowed: printable ASCII characters without spaces",
        ),
        ("workers: 257", "workers: found '257'; allowed: an integer from 1 to 256"),
        ("workers: 0", "workers: found '0'; allowed: an integer from 1 to 256"),
        ("workers: auto", "workers: found 'auto'; allowed: an integer from 1 to 256"),
        ("pins: 24h", "pins: found '24h'; allowed: a mapping with store, url, ttl, capacity"),
        ("pins: {store: file}", "pins.store: found 'file'; allowed: memory, redis"),
        ("pins: {store: rdis, url: x}", "pins.store: found 'rdis'; allowed: memory, redis; did you mean 'redis'?"),
        ("pins: {store: redis}", f"pins.url: missing; allowed: {REDIS_URL}"),
        ("pins: {url: 'redis://h'}", "pins.url: the store memory has none; allowed: a url beside store: redis"),
        ("pins: {store: memory, url: x}", "pins.url: the store memory has none; allowed: a url beside store: redis"),
        ("pins: {ttl: 24}", f"pins.ttl: found '24'; allowed: {UNIT}, more than 0s to 10 years"),
        ("pins: {ttl: 0s}", f"pins.ttl: found '0s'; allowed: {UNIT}, more than 0s to 10 years"),
        ("pins: {ttl: -1s}", f"pins.ttl: found '-1s'; allowed: {UNIT}, more than 0s to 10 years"),
        ("pins: {ttl: 1d}", f"pins.ttl: found '1d'; allowed: {UNIT}, more than 0s to 10 years"),
        ("pins: {ttl: 1m30s}", f"pins.ttl: found '1m30s'; allowed: {UNIT}, more than 0s to 10 years"),
        ("pins: {ttl: 87601h}", f"pins.ttl: found '87601h'; allowed: {UNIT}, more than 0s to 10 years"),
        (f"pins: {{ttl: {'9' * 400}s}}", f"pins.ttl: found '{'9' * 80}'...; allowed: {UNIT}, more than 0s to 10 years"),
        ("pins: {capacity: 0}", "pins.capacity: found '0'; allowed: an integer from 1 to 100000000"),
        ("pins: {capacity: 1e6}", "pins.capacity: found '1e6'; allowed: an integer from 1 to 100000000"),
        ("pins: {capacity: 010}", "pins.capacity: found '010'; allowed: an integer from 1 to 100000000"),
        ("pins: {capacity: true}", "pins.capacity: found 'true'; allowed: an integer from 1 to 100000000"),
        ("log: {access: maybe}", "log.access: found 'maybe'; allowed: true, false"),
        ("log: {access: 1}", "log.access: found '1'; allowed: true, false"),
        ("log: {format: jsn}", "log.format: found 'jsn'; allowed: json, text; did you mean 'json'?"),
        ("drain: 0", f"drain: found '0'; allowed: {UNIT}, from 0s to 10 years"),
        ("drain: [25s]", f"drain: found a list; allowed: {UNIT}, from 0s to 10 years"),
    ],
)
def test_mistakes_at_the_top(written: str, message: str) -> None:
    assert mistakes(with_top(written)) == [f"proxy.yaml:3: {message}"]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("localhost:6379", "'localhost:6379'"),
        ("http://host", "'http://host'"),
        ("REDIS://host", "'REDIS://host'"),
        ("redis://", "'redis://'"),
        ("redis://host:0", "'redis://host:0'"),
        ("redis://host:65536/1", "'redis://host:65536/1'"),
        ("redis://host:port", "a value that is not shown"),
        ("redis://h ost", "'redis://h ost'"),
        ("redis://[::1]/x", "'redis://[::1]/x'"),
        ("redis://host/0?ssl=no", "'redis://host/0?ssl=no'"),
        ("redis://host/0#x", "'redis://host/0#x'"),
        ("unix://", "'unix://'"),
        ("unix://run/redis.sock?db=x", "'unix://run/redis.sock?db=x'"),
        ("redis://:sesame", "a value that is not shown"),
        ("sesame@host", "a value that is not shown"),
        ("http://:sesame@host", "a value that is not shown"),
        ("redis://me:sesame@host:0", "'redis://me:***@host:0'"),
        ("redis://:sesame@ho st", "'redis://:***@ho st'"),
        ("redis://me:se/same@host", "a value that is not shown"),
        ("redis://me:se@sesame@host", "a value that is not shown"),
        ("redis://me:%sesame@host", "a value that is not shown"),
        ("unix://:sesame@run", "a value that is not shown"),
    ],
)
def test_a_url_of_a_redis_is_wrong_and_no_password_is_shown(written: str, found: str) -> None:
    encoded = "; % / ? # @ in a password as %25 %2F %3F %23 %40" if "@" in written else ""
    expected = f"proxy.yaml:3: pins.url: found {found}; allowed: {REDIS_URL}{encoded}"
    assert mistakes(with_top(f"pins: {{store: redis, url: '{written}'}}")) == [expected]
    hidden = f"proxy.yaml:3: pins.url: found a value that is not shown; allowed: {REDIS_URL}{encoded}"
    assert mistakes(with_top("pins: {store: redis, url: '${URL}'}"), URL=written) == [hidden]


def test_host_backend_off_loopback_needs_allowed_hosts() -> None:
    text = with_pool("host: backend")
    expected = (
        "listen.allowed_hosts: missing: pools.agents.host is backend, and 0.0.0.0 is not on loopback; "
        "allowed: a list of the hosts that clients ask for"
    )

    assert mistakes(text + "listen: 0.0.0.0:8080") == [f"proxy.yaml:8: {expected}"]
    assert mistakes(text + "listen: {address: '0.0.0.0:8080'}") == [f"proxy.yaml:8: {expected}"]
    allowed = parse(text + "listen: {address: '0.0.0.0:8080', allowed_hosts: [a]}", "proxy.yaml", {})
    assert allowed.listen.allowed_hosts == ("a",)


@pytest.mark.parametrize(
    ("listen", "admin", "clash"),
    [
        ("127.0.0.1:9000", "127.0.0.1:9000", True),
        ("0.0.0.0:9000", "127.0.0.1:9000", True),
        ("'[::]:9000'", "127.0.0.1:9000", True),
        ("10.0.0.1:9000", "127.0.0.1:9000", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
    ],
)
def test_admin_is_never_on_the_public_port(listen: str, admin: str, clash: bool) -> None:
    text = with_top(f"listen: {listen}", f"admin: {admin}")
    if clash:
        assert mistakes(text) == ["proxy.yaml:4: admin: found port 9000, as in listen; allowed: a port of its own"]
    else:
        assert str(parse(text, "proxy.yaml", {}).admin.port) == admin.rpartition(":")[2]


def test_all_mistakes_are_reported_at_once_in_the_order_of_lines() -> None:
    text = (
        FULL.replace("drain: 25s", "drain: soon")
        .replace("weight: 2", "weight: two")
        .replace("pool: agents", "pool: agent")
        .replace("'127.0.0.1:8080'", "'127.0.0.1'")
        .replace("format: json", "format: xml")
        .replace("ring_key: header:X-Tenant", "ring_kye: header:X-Tenant")
    )

    assert [message.split(": ")[:2] for message in mistakes(text)] == [
        ["proxy.yaml:1", "listen.address"],
        ["proxy.yaml:8", "pools.agents.backends[1].weight"],
        ["proxy.yaml:14", "pools.tenants.ring_key"],
        ["proxy.yaml:17", "pools.tenants.ring_kye"],
        ["proxy.yaml:25", "routes[1].pool"],
        ["proxy.yaml:29", "log.format"],
        ["proxy.yaml:30", "drain"],
    ]
