"""What the configuration is to have and this version does not do yet.

A row here makes the key or value an error that says so, and what is allowed for now. Whoever builds the thing deletes
its row. Places are paths of keys, with `*` for a name that the user chooses and `[]` for an item of a list.
"""

from collections.abc import Mapping

MESSAGE = "not supported yet"

KEYS: Mapping[str, Mapping[str, str]] = {}
"""Per section: the keys that are not supported yet, and how things are without them."""

VALUES: Mapping[str, frozenset[str]] = {}
"""Per key: the values that are not supported yet. Those allowed are named where the key is read."""
