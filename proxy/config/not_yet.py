"""What the configuration is to have and this version does not do yet.

A row here makes the key or value an error that says so, and what is allowed for now. Whoever builds the thing deletes
its row. Places are paths of keys, with `*` for a name that the user chooses and `[]` for an item of a list.
"""

from collections.abc import Mapping

MESSAGE = "not supported yet"

KEYS: Mapping[str, Mapping[str, str]] = {
    "listen": {"tls": "clients speak plain HTTP"},
    "pools.*": {
        "health": "every backend that is not drained takes new work",
        "outlier": "no backend is taken out for its failures",
        "retry": "a request of which nothing was sent is tried on other backends",
        "limits": "requests in flight are not limited",
        "comment_every": "nothing is added to a stream",
        "tls": "backends are spoken to in plain HTTP",
        "discover": "backends are those that are listed",
    },
    "pools.*.timeouts": {
        "head": "a backend may take its time to answer",
        "idle": "a stream may be quiet for as long as it likes",
    },
}
"""Per section: the keys that are not supported yet, and how things are without them."""

VALUES: Mapping[str, frozenset[str]] = {
    "pools.*.backends[].url": frozenset({"https"}),
}
"""Per key: the values that are not supported yet. Those allowed are named where the key is read."""
