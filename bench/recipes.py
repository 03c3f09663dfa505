"""PURE: how each proxy is configured and started, so that all do the same job.

The job: one process with one thread, ``POST /mcp`` to one of the backends by consistent hash of Mcp-Name, connections
kept alive on both sides, answers passed on unbuffered, no access log.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a proxy runs: its own ports, those of its backends, and a directory of its own."""

    port: int
    admin_port: int
    backend_ports: tuple[int, ...]
    directory: Path


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to start one kind of proxy; ``program`` is what must be installed for it."""

    program: str
    config_name: str
    config: Callable[[Place], str]
    arguments: Callable[[Path], list[str]]
    # True where the process started only supervises, and its children are what is measured.
    children_only: bool = False


def proxy_config(place: Place) -> str:
    backends = "\n".join(f"      - http://{HOST}:{port}/mcp" for port in place.backend_ports)
    return f"""\
listen: {HOST}:{place.port}
admin: {HOST}:{place.admin_port}
pools:
  agents:
    backends:
{backends}
    balance: ring
    ring_key: name
routes:
  - {{name: rest, pool: agents}}
log: {{access: false}}
"""


def nginx_config(place: Place) -> str:
    backends = "\n".join(f"        server {HOST}:{port};" for port in place.backend_ports)
    # Connections must not be closed after the default of 1,000 requests: no other target does that.
    return f"""\
worker_processes 1;
daemon off;
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
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
        listen {HOST}:{place.port} backlog=1024;
        location /mcp {{
            proxy_pass http://agents;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_buffering off;
        }}
    }}
}}
"""


def haproxy_config(place: Place) -> str:
    backends = "\n".join(f"    server b{number} {HOST}:{port}" for number, port in enumerate(place.backend_ports))
    # http-no-delay: without it the first event of a stream is held back some 200 ms.
    return f"""\
global
    nbthread 1
defaults
    mode http
    option http-no-delay
    http-reuse always
    timeout connect 2s
    timeout client 60s
    timeout server 60s
frontend mcp
    bind {HOST}:{place.port}
    default_backend agents
backend agents
    balance hdr(Mcp-Name)
    hash-type consistent
{backends}
"""


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
}
