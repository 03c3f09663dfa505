"""mcp-routing-proxy: a header-aware routing reverse proxy for fleets of MCP servers.

The shell gathers facts, the core decides, the shell acts. One request walks:

    accept -> head parsed -> RoutingHeaders (400) -> route, reachable pools (404) -> owner: pin or tag
    -> pool's choice (503) -> lease of a backend connection -> head sent, body relayed as it comes
    -> response head -> response relayed; what a piece teaches is stored, then the piece leaves
    -> one RequestRecord to metrics and access log, whatever happened

Layers, imports point down only (tests/test_layering.py holds this):

    cli
    demo                    three servers and the proxy in front of them
    app                     composition root: Config -> a running proxy
    control                 the admin interface (aiohttp)
    wire.exchange           the life of one request
    wire.destination        where it goes: its task's owner, or a backend of its route's pool
    wire.learning           what an answer teaches is stored before it leaves
    wire.client, wire.backend, wire.listener, metrics, access_log, pins, discovery
    background              loops and tasks that do not die silently
    config                  YAML -> frozen values
    wire.*_head, wire.events, wire.framing
                            pure: bytes of heads, server-sent events, where bodies end
    records                 what happened to one request
    routing                 pure decisions
"""
