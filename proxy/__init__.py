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
    serving                 a proxy's life: its signals, and the generation after it
    app, workers            composition roots: a proxy in one process, or several that serve as one
    control                 the admin interface (aiohttp)
    traffic                 what clients meet of one process: listeners, pools, pins, counts, and their changes
    parts                   what a configuration makes: pools with their connections, admission, trust
    wire.exchange           the life of one request
    wire.relay              its response on the way back
    wire.listening          one subscription at every backend, their streams merged
    wire.surroundings       what all exchanges share
    wire.search             who owns this task? how many ask at a time, and how many wait for backends that are away
    wire.inquiry            one such request to many backends
    wire.part, wire.probe   one backend's answer to a subscription, to a search
    wire.absence            backends that are away, looked for
    wire.destination        where it goes: an owner, a search, or a backend of its route's pool
    wire.learning           what an answer teaches is stored before it leaves
    explaining              where a made-up request would go, and why
    counts                  what happens in this process, as numbers
    wire.client, wire.backend, wire.listener, metrics, access_log, usage, pins, discovery
    pins.redis_*            what Redis is told, and when; the line to it
    background              loops and tasks that do not die silently
    config                  YAML -> frozen values
    wire.forwarding         pure, as what follows: what a backend is sent of a head
    wire.*_head, wire.events, wire.merging, wire.framing
                            bytes of heads, server-sent events, one stream of many, where bodies end
    wire.limits, records, snapshot
                            limits of heads; what happened to one request; numbers that can be added up
    routing                 pure decisions; at their top those told to operators, at their bottom the errors
"""
