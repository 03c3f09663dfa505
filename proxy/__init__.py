"""mcp-routing-proxy: a header-aware routing reverse proxy for fleets of MCP servers.

The shell gathers facts, the core decides, the shell acts. One request walks:

    accept -> head parsed -> RoutingHeaders (400) -> admission (421, 403) -> route, reachable pools (404)
    -> owner: of a task by pin, tag or search (503), of a session by tag (404); else who asked back before; else
    the pool's choice (503) -> a slot there, or a turn in the queue (503) -> lease of a backend connection
    -> head sent, body relayed as it comes
    -> response head -> response relayed; what a piece teaches is stored, then the piece leaves
    -> one RequestRecord to metrics and access log, whatever happened

A usual request, one like others before it, walks the same way in few steps (wire.express); nobody can tell.

Layers, imports point down only (tests/test_layering.py holds this):

    cli
    demo                    three servers and the proxy in front of them
    inspection              commands that ask a configuration or a running proxy
    serving                 a proxy's life: its signals, and the generation after it
    app, workers            composition roots: a proxy in one process, or several that serve as one
    control                 the admin interface (aiohttp)
    traffic                 what clients meet of one process: listeners, pools, pins, counts, and their changes
    parts, membership       what a configuration makes: pools with their connections, admission, trust; whom a pool has,
                            those included that were discovered
    wire.express            the short walk of the usual request
    wire.exchange           the life of one request
    wire.to_many            to many backends: a search, or a subscription
    wire.ending, wire.tending
                            the answer that is the proxy's own, the record; what has been quiet for too long
    wire.approach           the way to a backend: a slot, a connection, another attempt
    wire.relay              its response on the way back
    wire.listening          one subscription at every backend, their streams merged
    wire.attempts           what follows an attempt that failed
    wire.surroundings       what all exchanges share
    wire.search             who owns this task? how many ask at a time, and how many wait for backends that are away
    wire.inquiry            one such request to many backends
    wire.part, wire.probe   one backend's answer to a subscription, to a search
    wire.absence            backends that are away, looked for
    wire.outgoing           the request's bytes on their way out, and those kept
    wire.courses            what usual requests with one frame have in common
    wire.directory, wire.owners
                            where it goes: an owner, a search, or a backend of its route's pool
    wire.destination        the places where it can go
    wire.learning           what an answer teaches is stored before it leaves
    explaining              where a made-up request would go, and why
    counts                  what happens in this process, as numbers
    discovery.following     the sources of backends are followed, and the pools told
    wire.turns              whoever finds all slots of a pool taken waits
    wire.client             a client's connection: how long it may take, when no more is served on it
    wire.connections        those to one backend: dialled, kept, closed in time
    wire.listener, wire.handshakes, metrics, access_log, usage, pins, discovery
    pins.redis_*            what Redis is told, and when; the line to it
    wire.conversation, wire.backend
                            requests and answers on a connection, one after the other
    wire.*_reader, wire.sinks
                            pure: messages read off the bytes, one by one; who receives them
    wire.tls, wire.line, wire.closing
                            TLS between a socket and the HTTP protocol above it; what is alike on both sides; ends
    background              loops and tasks that do not die silently
    config                  YAML -> frozen values
    wire.forwarding         pure, as what follows: what a backend is sent of a head
    wire.*_head, wire.events, wire.merging, wire.framing
                            bytes of heads, server-sent events, one stream of many, where bodies end
    wire.request_frame      what requests on one connection share
    wire.limits, wire.likeness, wire.patience, records, snapshot
                            limits of heads; heads told by comparing; how long clients may take; what happened to one
                            request; numbers that can be added up
    certificates            what the settings of TLS and their files amount to
    discovery.damping       whom to believe in when answers differ
    routing                 pure decisions; at their top those told to operators, at their bottom the errors
"""
