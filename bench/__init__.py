"""What a request costs the proxy in CPU time, measured beside other proxies in one run, and counted in calls.

Every target stands between the same load generator and the same four backends, and gets its slices of time in turn, in
random order, so that whatever else the machine does meets all of them alike. Compare only within one run.

``python -m bench`` measures one load and prints a table, for work on the proxy. ``python -m bench.suite`` measures all
of ``sections`` and writes docs/performance.md with ``document`` and ``plots``. ``python -m bench.work`` counts instead
of timing; the tests do so as well, and fail if a request has come to cost more. Crowds and stores have drivers of their
own: ``idle_streams``, ``slow_clients``, ``pins``.

``recipes`` says how each proxy is configured and started, ``targets`` starts it, ``upstream`` and ``load`` are the
processes on its two ``sides``, ``clients`` are what the load is made of, ``workload`` and ``framing`` what is said,
``cpu`` reads the kernel's counters around each slice, ``report`` turns the slices into a table. ``aiohttp_proxy`` is
the baseline: what the same duties cost in the usual way.
"""
