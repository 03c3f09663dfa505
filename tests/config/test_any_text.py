"""Whatever the text, `parse` returns a Config or raises ConfigError; and a Config describes itself."""

import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.config import Config, ConfigError, describe, parse
from tests.config.samples import FULL

WORDS = FULL.replace("{", " { ").replace("}", " } ").replace("[", " [ ").replace("]", " ] ").split(" ")
ENVIRON = {"A": "x", "EMPTY": "", "NUMBER": "7", "ODD": "\udcff"}

# The same as FULL, as values: what any kind of value does in any place is easier to ask of a tree.
TREE: dict[str, Any] = {
    "listen": {
        "address": "127.0.0.1:8080",
        "allowed_hosts": ["a"],
        "allowed_origins": [],
        "trusted_proxies": ["10.0.0.0/8"],
    },
    "admin": {"address": "0.0.0.0:9901", "token": "sesame"},
    "workers": 1,
    "pools": {
        "a": {
            "backends": ["http://a", {"id": "b", "url": "http://b:1/x", "weight": 2, "drain": False}],
            "balance": "ring",
            "ring_key": "header:X-Tenant",
            "tasks": {"state": "local", "search": False, "owner_tag": "(?P<backend>x)"},
            "listen": "one",
            "host": "preserve",
            "timeouts": {"connect": "2s"},
        },
        "b": {"backends": ["http://c"]},
    },
    "routes": [
        {
            "name": "x",
            "match": {"method": "m", "name": "n*", "param": {"R": "regex:e+"}, "header": {"X-T": "t"}},
            "pool": "a",
        },
        {"name": "y", "match": {"protocol": "<2026-07-28", "host": "h", "path": "/p"}, "pool": "a"},
        {"name": "z", "split": {"a": 95, "b": 5}},
    ],
    "pins": {"store": "memory", "ttl": "24h", "capacity": 10},
    "log": {"access": True, "format": "json"},
    "drain": "25s",
}


def outcome(text: str) -> str:
    """Which of the two it is; anything else is raised."""
    try:
        config = parse(text, "proxy.yaml", ENVIRON)
    except ConfigError as error:
        lines = str(error).split("\n")
        assert len(lines) == len(error.problems) > 0
        assert all(line.startswith("proxy.yaml") for line in lines)
        str(error).encode("utf-8")
        return "error"
    assert isinstance(config, Config)
    described = describe(config)
    again = parse(described, "described", {})
    if "***" not in described.replace('token: "***"', ""):
        assert repr(again) == repr(config)
    return "config"


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values below this one."""
    below = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [deeper for key, value in below for deeper in ((*path, key), *places(value, (*path, key)))]


def changed(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of the tree with another value at this path."""
    copy = json.loads(json.dumps(tree))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return copy


STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.text(alphabet="${}ABC_", max_size=10),
    st.sampled_from(
        ["${A}", "${EMPTY}", "${NUMBER}", "${ODD}", "${UNSET}", "$${A}", "https://a", "http://u:p@h", "[::1]:80"]
    ),
    st.text(alphabet="()[]{}*+?|\\^$.:<>=P-,0123456789ab", max_size=12).map("regex:".__add__),
    st.text(alphabet="0123456789.smhd-", max_size=8),
    st.text(alphabet="0123456789:.[]abf/", max_size=12),
    st.text(alphabet="/:@?#%.ab0123456789", max_size=12).map("http://".__add__),
    st.dates().map(str),
    st.lists(st.one_of(st.text(max_size=5), st.none(), st.just({})), max_size=3),
    st.dictionaries(st.text(max_size=8), st.one_of(st.text(max_size=5), st.integers(), st.none()), max_size=3),
)


def test_the_tree_is_a_configuration() -> None:
    assert outcome(json.dumps(TREE)) == "config"


@settings(deadline=None)
@given(st.text())
def test_any_text(text: str) -> None:
    assert outcome(text) in ("config", "error")


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from([*WORDS, "\n", "\n  ", ": ", "- ", "&a ", "*a", "!!set ", "<<: ", '"', "${A}", "\t"]),
        max_size=40,
    )
)
def test_any_words(words: list[str]) -> None:
    assert outcome("".join(words)) in ("config", "error")


@settings(deadline=None)
@given(st.integers(0, len(FULL)), st.integers(0, 30), st.text(max_size=5))
def test_a_cut_and_an_insertion(start: int, length: int, inserted: str) -> None:
    assert outcome(FULL[:start] + inserted + FULL[start + length :]) in ("config", "error")


@settings(deadline=None)
@given(st.data())
def test_any_value_in_any_place(data: st.DataObject) -> None:
    tree = TREE
    for _ in range(data.draw(st.integers(1, 3))):
        tree = changed(tree, data.draw(st.sampled_from(places(tree))), data.draw(STRANGE))
    assert outcome(json.dumps(tree)) in ("config", "error")


@settings(deadline=None)
@given(st.sampled_from(places(TREE)), st.text(max_size=8), STRANGE)
def test_any_key_in_any_mapping(path: tuple[Any, ...], key: str, value: Any) -> None:
    assert outcome(json.dumps(changed(TREE, (*path[:-1], key) if isinstance(path[-1], str) else path, value))) in (
        "config",
        "error",
    )


def test_lines_in_any_order() -> None:
    shuffle = random.Random(20260728).shuffle
    lines = FULL.splitlines(keepends=True)
    outcomes = set()
    for _ in range(50):
        shuffle(lines)
        outcomes.add(outcome("".join(lines)))
    assert outcomes == {"error"}
