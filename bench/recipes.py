"""PURE: how each proxy is configured and started, so that all do the same job.

The job: one process with one thread, ``POST /mcp`` to one of the backends by consistent hash of Mcp-Name, connections
kept alive on both sides, requests and answers passed on unbuffered, no access log.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.workload import TOOLS

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM: the authority, the certificate it signed for HOST, its key, and these two in one."""

    ca: Path
    chain: Path
    key: Path
    both: Path


@dataclass(frozen=True, slots=True)
class Place:
    """Where a proxy runs: its own ports, those of its backends, and a directory of its own; and in what variant.

    ``certificate``: of its listener, None for plain HTTP. ``clients``: connected at most at a time. Only proxy knows
    ``workers`` and ``routes``.
    """

    port: int
    admin_port: int
    backend_ports: tuple[int, ...]
    directory: Path
    certificate: Certificate | None = None
    clients: int = 2000
    workers: int = 1
    routes: int = 1


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to start one kind of proxy; ``program`` is what must be installed for it."""

    program: str
    config_name: str
    config: Callable[[Place], str]
    arguments: Callable[[Path], list[str]]
    # True where the process started only supervises, and its children are what is measured.
    children_only: bool = False
    # False where a run without the name of what to start leaves it out.
    usual: bool = True


def proxy_config(place: Place) -> str:
    backends = "\n".join(f"      - http://{HOST}:{port}/mcp" for port in place.backend_ports)
    routes = "\n".join(_routes(place.routes))
    pair = place.certificate
    tls = "" if pair is None else f", tls: {{certificate: {pair.chain}, key: {pair.key}}}"
    return f"""\
listen: {{address: "{HOST}:{place.port}", allowed_hosts: ["{HOST}"]{tls}}}
admin: {HOST}:{place.admin_port}
workers: {place.workers}
pools:
  agents:
    backends:
{backends}
    balance: ring
    ring_key: name
routes:
{routes}
log: {{access: false}}
"""


def _routes(count: int) -> list[str]:
    """So many routes to the one pool: exact names, those of the tools evenly among them, globs, and the rest."""
    step = max(1, (count - 1) // len(TOOLS))
    routes = []
    for number in range(count - 1):
        tool, place = divmod(number, step)
        if not place and tool < len(TOOLS):
            name = TOOLS[tool]
        else:
            name = f"tenant_{number}_*" if place % 2 else f"other_{number}"
        routes.append(f"  - {{name: r{number}, match: {{name: '{name}'}}, pool: agents}}")
    return [*routes, "  - {name: rest, pool: agents}"]


def nginx_config(place: Place) -> str:
    backends = "\n".join(f"        server {HOST}:{port};" for port in place.backend_ports)
    pair = place.certificate
    tls = "" if pair is None else f"\n        ssl_certificate {pair.chain};\n        ssl_certificate_key {pair.key};"
    # Each client takes two connections; idle ones are cut off once fewer than a sixteenth of all are free.
    connections = 9 * place.clients // 4 + 100
    # Connections must not be closed after the default of 1,000 requests: no other target does that.
    return f"""\
worker_processes 1;
daemon off;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    client_body_temp_path client_body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_requests 1000000000;
    upstream agents {{
        hash $http_mcp_name consistent;
{backends}
        keepalive 512;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {HOST}:{place.port}{"" if pair is None else " ssl"} backlog=1024;{tls}
        location /mcp {{
            proxy_pass http://agents;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
"""


def haproxy_config(place: Place) -> str:
    backends = "\n".join(f"    server b{number} {HOST}:{port}" for number, port in enumerate(place.backend_ports))
    tls = "" if place.certificate is None else f" ssl crt {place.certificate.both}"
    # http-no-delay: without it the first event of a stream is held back some 200 ms.
    return f"""\
global
    nbthread 1
    maxconn {place.clients + 20}
defaults
    mode http
    option http-no-delay
    http-reuse always
    timeout connect 2s
    timeout client 600s
    timeout server 600s
frontend mcp
    bind {HOST}:{place.port}{tls}
    default_backend agents
backend agents
    balance hdr(Mcp-Name)
    hash-type consistent
{backends}
"""


def envoy_config(place: Place) -> str:
    """In JSON, which Envoy reads as well. Routing by ring_hash of the field; its limits are out of the way."""
    endpoints = [
        {"endpoint": {"address": {"socket_address": {"address": HOST, "port_value": port}}}}
        for port in place.backend_ports
    ]
    most = {"max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000}
    types = "type.googleapis.com/envoy.extensions"
    cluster = {
        "name": "agents",
        "type": "STATIC",
        "connect_timeout": "2s",
        "lb_policy": "RING_HASH",
        "circuit_breakers": {"thresholds": [most]},
        "load_assignment": {"cluster_name": "agents", "endpoints": [{"lb_endpoints": endpoints}]},
    }
    route = {
        "match": {"prefix": "/mcp"},
        "route": {"cluster": "agents", "timeout": "0s", "hash_policy": [{"header": {"header_name": "Mcp-Name"}}]},
    }
    manager = {
        "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "mcp",
        "codec_type": "HTTP1",
        "stream_idle_timeout": "0s",
        "route_config": {"virtual_hosts": [{"name": "mcp", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{types}.filters.http.router.v3.Router"}},
        ],
    }
    listener = {
        "name": "mcp",
        "address": {"socket_address": {"address": HOST, "port_value": place.port}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    return json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})


def aiohttp_config(place: Place) -> str:
    return json.dumps({"host": HOST, "port": place.port, "backends": place.backend_ports})


RECIPES = {
    "proxy": Recipe(
        program=sys.executable,
        config_name="proxy.yaml",
        config=proxy_config,
        arguments=lambda config: ["-m", "proxy", "serve", "-c", str(config)],
    ),
    "nginx": Recipe(
        program="nginx",
        config_name="nginx.conf",
        config=nginx_config,
        arguments=lambda config: ["-p", f"{config.parent}/", "-e", "stderr", "-c", str(config)],
        children_only=True,
    ),
    "haproxy": Recipe(
        program="haproxy",
        config_name="haproxy.cfg",
        config=haproxy_config,
        arguments=lambda config: ["-db", "-f", str(config)],
    ),
    "envoy": Recipe(
        program="envoy",
        config_name="envoy.json",
        config=envoy_config,
        arguments=lambda config: ["-c", str(config), "--concurrency", "1", "--disable-hot-restart", "-l", "warn"],
        usual=False,
    ),
    "aiohttp": Recipe(
        program=sys.executable,
        config_name="aiohttp.json",
        config=aiohttp_config,
        arguments=lambda config: ["-m", "bench.aiohttp_proxy", str(config)],
        usual=False,
    ),
}
