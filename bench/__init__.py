"""What a request costs the proxy in CPU time, measured beside nginx and HAProxy in one run: ``python -m bench``.

Every target stands between the same load generator and the same four backends, and gets its slices of time in turn, in
random order, so that whatever else the machine does meets all of them alike. Compare only within one run.

``recipes`` says how each proxy is configured and started, ``targets`` starts it, ``upstream`` and ``load`` are the
processes on its two sides, ``workload`` and ``framing`` what they say to each other, ``cpu`` reads the kernel's
counters around each slice, ``report`` turns the slices into a table, and ``__main__`` puts these together.
"""
