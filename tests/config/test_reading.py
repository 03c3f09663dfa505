"""Files that are no configuration at all: one ConfigError each, never another exception."""

from pathlib import Path

import pytest

from proxy.config import Config, ConfigError, load, parse
from tests.config.samples import FULL, mistakes, with_top

KEYS = "listen, admin, workers, pools, routes, pins, log, drain"


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", ["1: found an empty file; allowed: a mapping with pools and routes"]),
        ("# nothing\n\n---\n", [f"4: found nothing; allowed: a mapping with {KEYS}"]),
        ("[]", [f"1: found an empty list; allowed: a mapping with {KEYS}"]),
        ("\n\npools", [f"3: found 'pools'; allowed: a mapping with {KEYS}"]),
        (
            "a: [\n",
            [
                "2: not valid YAML: expected the node content, but found '<stream end>', "
                "while parsing a flow node from line 2"
            ],
        ),
        ("pools:\n  a: b: c\n", ["2: not valid YAML: mapping values are not allowed here"]),
        ("pools:\n\tx: 1", ["2: not valid YAML: found character '\\t' that cannot start any token"]),
        ("pools: *here", ["1: not valid YAML: found undefined alias 'here'"]),
        (
            "pools: 'a",
            ["1: not valid YAML: found unexpected end of stream, while scanning a quoted scalar from line 1"],
        ),
        (
            "a: 1\n---\nb: 2",
            ["2: not valid YAML: expected a single document in the stream, but found another document"],
        ),
        ("a: 1\nb: \x00", ["2: not valid YAML: the character '\\x00' is not allowed"]),
        ("a: 1\nb: \ud800", ["2: not valid YAML: the character '\\ud800' is not allowed"]),
        ("%YAML 3.0\n---\na: 1", ["1: not valid YAML: found incompatible YAML document (version 1.* is required)"]),
        (
            "pools:\n  a: {weight: ${W}}",
            [
                "2: not valid YAML: expected ',' or '}', but got '{', while parsing a flow mapping from line 2; "
                "within {} and [] put ${VAR} in quotes"
            ],
        ),
        ("a: " + "[" * 40, ["1: not valid YAML: nested deeper than 32 levels"]),
        ("a: " + "{a: " * 100_000, ["1: not valid YAML: nested deeper than 32 levels"]),
        ("- " * 100_000, ["1: not valid YAML: nested deeper than 32 levels"]),
    ],
)
def test_no_configuration(text: str, messages: list[str]) -> None:
    assert mistakes(text) == [f"proxy.yaml:{message}" for message in messages]


@pytest.mark.parametrize(
    ("text", "line"),
    [('a: "\\UFFFFFFFF"', 1), (f"%YAML 1.{'9' * 5000}\n---\na: 1", 1), ("\n\na: !<tag:%FF> x", 3)],
)
def test_numbers_and_escapes_that_cannot_be(text: str, line: int) -> None:
    (message,) = mistakes(text)

    assert message.startswith(f"proxy.yaml:{line}: not valid YAML: ")


@pytest.mark.parametrize(
    ("written", "key", "tag"),
    [
        ("drain: !!python/object/apply:os.system [x]", "drain", "tag:yaml.org,2002:python/object/apply:os.system"),
        ("log: {access: !!python/name:os.system ''}", "log.access", "tag:yaml.org,2002:python/name:os.system"),
        ("drain: !seconds 25s", "drain", "!seconds"),
        ("drain: !!binary MjVz", "drain", "tag:yaml.org,2002:binary"),
        ("log: !!set {access: , format: }", "log", "tag:yaml.org,2002:set"),
        ("log: !!seq {access: true}", "log", "tag:yaml.org,2002:seq"),
        ("!env log: {access: true}", "log", "!env"),
    ],
)
def test_tags_are_refused(written: str, key: str, tag: str) -> None:
    assert f"proxy.yaml:3: {key}: found tag '{tag}'; allowed: no tag" in mistakes(with_top(written))


@pytest.mark.parametrize(
    "written", ["drain: !!str 25s", "drain: ! 25s", "log: !!map {access: !!bool true}", "pins: {capacity: !!int 5}"]
)
def test_tags_of_yaml_itself_change_nothing(written: str) -> None:
    assert isinstance(parse(with_top(written), "proxy.yaml", {}), Config)


@pytest.mark.parametrize(
    ("written", "messages"),
    [
        (("drain: 1s", "log: {}", "drain: 2s"), ["5: drain: given twice, first in line 3"]),
        (("drain: 1s", "'drain': 2s", "drain: 3s"), [f"{n}: drain: given twice, first in line 3" for n in (4, 5)]),
        (("pins: {", "  ttl: 1s,", "  ttl: 2s}"), ["5: pins.ttl: given twice, first in line 4"]),
        (("[a]: 1",), ["3: found a list or a mapping as a key; allowed: text as a key"]),
        (
            ("log: &log", "  access: *log"),
            ["3: log.access: contains itself", "4: log.access: found nothing; allowed: true, false"],
        ),
        (("log: {<<: 5}",), ["3: log.<<: allowed: an alias of a mapping, or a list of such aliases"]),
    ],
)
def test_keys(written: tuple[str, ...], messages: list[str]) -> None:
    found = [message.replace("'<<'", "<<") for message in mistakes(with_top(*written))]
    assert found == [f"proxy.yaml:{message}" for message in messages]


def test_aliases_of_aliases_cost_nothing() -> None:
    levels = "".join(f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 200))

    assert len(mistakes(f"log:\n  l0: &l0 [x]\n{levels}")) == 200 + 2


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "proxy.yaml"
    path.write_text(FULL, encoding="utf-8")

    assert load(path, {}).admin.token == "sesame"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: \xff", ":2: not UTF-8; allowed: text in UTF-8"),
        (FULL.encode("utf-16"), ":1: not UTF-8; allowed: text in UTF-8"),
        (b"#" * (1024 * 1024 + 1), ": larger than 1048576 bytes"),
        (b"drain: 5", ":1: pools: missing; allowed: a mapping of pools by name, at least one"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "proxy.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(path, {})

    assert str(caught.value).split("\n")[0] == f"{path}{message}"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("", "Is a directory"), ("none.yaml", "No such file or directory"), ("a\0b", "embedded null byte")],
)
def test_what_is_no_file(tmp_path: Path, name: str, reason: str) -> None:
    path = tmp_path / name
    with pytest.raises(ConfigError) as caught:
        load(path, {})

    assert str(caught.value) == f"{path}: cannot be read: {reason}"
    (problem,) = caught.value.problems
    assert (problem.source, problem.line, problem.key) == (str(path), None, "")
