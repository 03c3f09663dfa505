"""Every key that is described, each with a configuration in which only it matters."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from proxy.config.loading import ROOT
from proxy.config.reference import sections_below
from proxy.config.sections import AnyKey

_TLS_FILES = {"certificate": "tls/proxy.pem", "key": "tls/proxy.key"}
_POOL = {"backends": ["https://a", "http://b"]}
_NEEDED: dict[str, dict[str, Any]] = {
    "": {
        "pools": {"agents": _POOL, "canary": {"backends": ["http://c"]}},
        "routes": [
            {"name": "r", "pool": "agents"},
            {"name": "s", "match": {"path": "/s"}, "split": {"agents": 1, "canary": 1}},
        ],
    },
    "listen.tls": _TLS_FILES,
    "pools.*": _POOL,
    "pools.*.backends[]": {"url": "http://a"},
    "pools.*.discover": {"dns": "a:1"},
    "pools.*.health": {"path": "/up"},
    "routes[]": {"name": "r", "pool": "agents"},
}
"""What a section needs, whatever else is in it."""
_BESIDE: dict[str, dict[str, Any]] = {
    "pools.*.ring_key": {"balance": "ring"},
    "pools.*.tls.certificate": {"key": "tls/proxy.key"},
    "pools.*.tls.key": {"certificate": "tls/proxy.pem"},
    "pins.url": {"store": "redis"},
}
"""What a key needs beside it."""
_BESIDE_WORD: dict[tuple[str, str], dict[str, Any]] = {
    ("pools.*.balance", "ring"): {"ring_key": "name"},
    ("pins.store", "redis"): {"url": "redis://a"},
}
"""What a word needs beside it."""
_INSTEAD = {
    "pools.*.discover.file": "dns",
    "pools.*.health.discover": "path",
    "routes[].split": "pool",
}
"""What a key stands in place of."""


class Place(NamedTuple):
    """A key, and the place of its section."""

    section: str
    key: AnyKey

    @property
    def path(self) -> str:
        """As the reference names it."""
        return f"{self.section}.{self.key.name}".removeprefix(".")

    @property
    def written_path(self) -> str:
        """As a problem in `with_value` names it."""
        return self.path.replace(".*", ".agents").replace("[]", "[0]")


def places() -> Iterator[Place]:
    """Every key there is."""
    for section, keys in (("", ROOT), *sections_below(ROOT, "")):
        yield from (Place(section, key) for key in keys.keys)


def with_value(place: Place, value: Any) -> str:
    """A configuration in which the key has this value."""
    beside = _BESIDE.get(place.path, {}) | (_BESIDE_WORD.get((place.path, value), {}) if isinstance(value, str) else {})
    section = {**_NEEDED.get(place.section, {}), **beside, place.key.name: value}
    section.pop(_INSTEAD.get(place.path, ""), None)
    return _whole(place.section, section)


def without(place: Place) -> str:
    """The same configuration without the key."""
    section = {**_NEEDED.get(place.section, {})}
    section.pop(place.key.name, None)
    return _whole(place.section, section)


def _whole(place: str, section: Any) -> str:
    """YAML, of which JSON is a part."""
    tree: dict[str, Any] = json.loads(json.dumps(_NEEDED[""]))
    if not place:
        return json.dumps(section)
    steps = re.findall(r"\w+|\*|\[\]", place)
    node: Any = tree
    for step, after in zip(steps, [*steps[1:], ""], strict=True):
        name: Any = {"*": "agents", "[]": 0}.get(step, step)
        if not after:
            node[name] = section
        elif isinstance(node, dict):
            node = node.setdefault(name, {})
        else:
            node = node[name]
    return json.dumps(tree)
