"""mcp-routing-proxy: a header-aware routing reverse proxy for fleets of MCP servers.

The shell gathers facts, the core decides, the shell acts. One request walks:

    accept -> head parsed -> RoutingHeaders (400) -> admission (421, 403) -> route, reachable pools (404)
    -> owner: of a task by pin, tag or search (503), of a session by tag (404); else who asked back before; else
    the pool's choice (503) -> lease of a backend connection -> head sent, body relayed as it comes
    -> response head -> response relayed; what a piece teaches is stored, then the piece leaves
    -> one RequestRecord to metrics and access log, whatever happened

Layers, imports point down only (tests/test_layering.py holds this):

    cli
    demo                    three servers and the proxy in front of them
    inspection              commands that ask a configuration or a running proxy
    app                     composition root: Config -> a running proxy, and its changes
    control                 the admin interface (aiohttp)
    parts                   what a configuration makes: pools with their connections, admission, trust
    wire.exchange           the life of one request
    wire.relay              its response on the way back
    wire.surroundings       what all exchanges share
    wire.search             one request to many backends: who owns this task?
    wire.probe              one backend's answer to a search
    wire.destination        where it goes: an owner, a search, or a backend of its route's pool
    wire.learning           what an answer teaches is stored before it leaves
    explaining              where a made-up request would go, and why
    wire.client, wire.backend, wire.listener, metrics, access_log, pins, discovery
    background              loops and tasks that do not die silently
    config                  YAML -> frozen values
    wire.forwarding         pure, as what follows: what a backend is sent of a head
    wire.*_head, wire.events, wire.framing
                            bytes of heads, server-sent events, where bodies end
    wire.limits, records    limits of heads; what happened to one request
    routing                 pure decisions; at their top those told to operators, at their bottom the errors
"""
