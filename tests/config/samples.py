"""Configurations that tests start from, and the mistakes in them."""

import pytest

from proxy.config import ConfigError, parse

FULL = """\
listen: {address: '127.0.0.1:8080', allowed_hosts: [mcp.example.com], trusted_proxies: [10.0.0.0/8]}
admin: {address: 0.0.0.0:9901, token: sesame}
workers: 1
pools:
  agents:
    backends:
      - http://10.0.0.11:8000/mcp
      - {id: b, url: 'http://10.0.0.12:8000/mcp', weight: 2, drain: false}
    balance: least_in_flight
    tasks: {state: local, search: false, owner_tag: '^(?P<backend>[a-z]+)'}
    listen: one
    host: preserve
    timeouts: {connect: 2s}
  tenants:
    backends: ['http://10.0.1.11']
    balance: ring
    ring_key: header:X-Tenant
    host: backend
routes:
  - name: gpu
    match: {method: tools/call, name: 'render_*', param: {Region: 'regex:eu-.+'}, header: {X-Tenant: acme}}
    pool: tenants
  - name: old
    match: {protocol: '<2026-07-28', host: '*.example.com', path: /mcp}
    pool: agents
  - name: rest
    split: {agents: 95, tenants: 5}
pins: {store: memory, ttl: 24h, capacity: 1000000}
log: {access: true, format: json}
drain: 25s
"""


def with_pool(*lines: str) -> str:
    """A configuration whose pool has these lines, in line 4 and on."""
    inserted = "".join(f"    {line}\n" for line in lines)
    pool = f"pools:\n  agents:\n    backends: [http://10.0.0.1:8000/mcp]\n{inserted}"
    return f"{pool}routes:\n  - name: rest\n    pool: agents\n"


def with_routes(*routes: str) -> str:
    """A configuration with pools a and b, and these routes in line 5 and on."""
    inserted = "".join(f"  - {route}\n" for route in routes)
    return f"pools:\n  a: {{backends: ['http://a']}}\n  b: {{backends: ['http://b']}}\nroutes:\n{inserted}"


def with_top(*lines: str) -> str:
    """A configuration that ends with these lines, in line 3 and on."""
    pools = "pools: {agents: {backends: ['http://10.0.0.1']}}\nroutes: [{name: rest, pool: agents}]\n"
    return pools + "".join(f"{line}\n" for line in lines)


def mistakes(text: str, **environ: str) -> list[str]:
    """The lines of the error that this text raises."""
    with pytest.raises(ConfigError) as caught:
        parse(text, "proxy.yaml", environ)
    return str(caught.value).split("\n")
