"""The readers, the JSON Schema and the reference say the same of every key."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import main
from proxy.config import Config, ConfigError, parse
from proxy.config.fields import Field
from proxy.config.loading import ROOT
from proxy.config.problems import Report
from proxy.config.reading import read_yaml
from proxy.config.reference import REFERENCE, SCHEMA, reference, sections_below
from proxy.config.schema import default_of, schema_text
from proxy.config.sections import Form, Key, Keys
from tests.certificates import Authority
from tests.config.described import Place, places, with_value, without
from tests.config.editor import check_schema, objections, values_of

ROOT_FOLDER = Path(__file__).parents[2]
EXAMPLE = ROOT_FOLDER / "config" / "proxy.yaml"
EVERY = list(places())
ENVIRON = {"ADMIN_TOKEN": "sesame", "REDIS_URL": "redis://localhost"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files lie that examples name."""
    folder = tmp_path_factory.mktemp("described")
    authority = Authority(folder / "tls")
    authority.sign("proxy", "localhost")
    (folder / "tls" / "clients.pem").write_bytes(authority.file.read_bytes())
    return folder


def read(text: str, folder: Path) -> Config:
    return parse(text, str(folder / "proxy.yaml"), ENVIRON)


def written(yaml: str) -> Any:
    """A piece of YAML as a value."""
    return values_of(f"value: {yaml}")["value"]


def ids(place: Place) -> str:
    return place.path


def test_the_schema_is_one() -> None:
    check_schema()


@pytest.mark.parametrize(("file", "made"), [(REFERENCE, reference), (SCHEMA, schema_text)], ids=["text", "schema"])
def test_what_is_committed_is_what_the_code_says(file: Path, made: Callable[[], str]) -> None:
    """`python -m proxy.config.reference` writes both."""
    assert (ROOT_FOLDER / file).read_text(encoding="utf-8") == made()


def test_a_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "mcp-routing-proxy"


@pytest.mark.parametrize("place", EVERY, ids=ids)
def test_every_key_is_told(place: Place) -> None:
    key = place.key
    assert key.meaning.endswith(".") and key.form.allowed
    assert bool(key.example) is (key.form.keys is None) or key.name == "backends"
    heading = f"## `{place.section}`\n" if place.section else "## The whole file\n"
    section = reference().split(heading)[1].split("\n## ")[0]
    assert f"\n| `{key.name}` | " in section


@pytest.mark.parametrize("place", EVERY, ids=ids)
def test_every_key_that_is_described_is_read(place: Place, folder: Path) -> None:
    """A key that nobody reads would be taken without a word, and mean nothing."""
    text = with_value(place, [[{}]])

    with pytest.raises(ConfigError) as caught:
        read(text, folder)

    assert any(problem.key.startswith(place.written_path) for problem in caught.value.problems)
    assert objections(text)


@pytest.mark.parametrize("place", [place for place in EVERY if place.key.example], ids=ids)
def test_every_example_is_right(place: Place, folder: Path) -> None:
    text = with_value(place, written(place.key.example))

    read(text, folder)

    assert objections(text) == []


@pytest.mark.parametrize("place", [place for place in EVERY if default_of(place.key)], ids=ids)
def test_a_default_that_is_written_changes_nothing(place: Place, folder: Path) -> None:
    text = with_value(place, written(default_of(place.key)))

    assert repr(read(text, folder)) == repr(read(without(place), folder))
    assert objections(text) == []


@pytest.mark.parametrize(
    "place",
    [place for place in EVERY if place.key.form.keys and place.key.form.place == "" and place.key.default is not None],
    ids=ids,
)
def test_an_empty_section_is_the_same_as_none(place: Place, folder: Path) -> None:
    assert repr(read(with_value(place, {}), folder)) == repr(read(without(place), folder))


def edges(place: Place) -> list[tuple[object, bool]]:
    """Values at the borders of what the schema allows, and whether it does."""
    numbers = [piece for piece in place.key.form.schema.get("anyOf", ()) if "minimum" in piece]
    inside = [(piece[side], True) for piece in numbers for side in ("minimum", "maximum")]
    outside = [(piece[side] + by, False) for piece in numbers for side, by in (("minimum", -1), ("maximum", 1))]
    words = place.key.form.schema.get("enum", ())
    return [*inside, *outside, *((word, True) for word in words), *((f"no-{word}", False) for word in words)]


@pytest.mark.parametrize(
    ("place", "value", "right"),
    [(place, value, right) for place in EVERY for value, right in edges(place)],
    ids=lambda value: value.path if isinstance(value, Place) else str(value),
)
def test_words_and_ranges_are_those_of_the_proxy(place: Place, value: object, right: bool, folder: Path) -> None:
    text = with_value(place, value)

    try:
        read(text, folder)
        taken = True
    except ConfigError:
        taken = False

    assert taken is right
    assert (not objections(text)) is right


def test_the_example_names_every_key() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")

    assert objections(text) == []
    for place in EVERY:
        assert f"{place.key.name}:" in text, place.path


def test_a_default_that_the_example_tells_is_the_one() -> None:
    """Its comments say `default` behind values that are."""
    told = {}
    path: list[tuple[int, str]] = []
    for line in EXAMPLE.read_text(encoding="utf-8").split("\n"):
        name, colon, rest = line.partition(":")
        if not colon or name.lstrip().startswith(("#", "-")):
            continue
        indent = len(name) - len(name.lstrip())
        path = [step for step in path if step[0] < indent] + [(indent, name.strip())]
        value, hash_mark, comment = rest.partition("#")
        if hash_mark and comment.strip().startswith("default"):
            told[".".join(step for _, step in path).replace("pools.agents", "pools.*")] = value.strip()
    sections = {"listen": "127.0.0.1:8080"}
    assert len(told) > 25
    for place in EVERY:
        if place.path in told and place.path not in sections and place.key.form.keys is None:
            assert written(told[place.path]) == written(default_of(place.key)), place.path


def test_a_key_that_is_not_described_cannot_be_read() -> None:
    form: Form[str] = Form("text", {}, lambda field: field.text())
    described: Key[str, None] = Key("a", form, None, "One.")
    stranger: Key[str, None] = Key("a", form, None, "Another.")
    keys = Keys("", (described,))
    section = keys.section(_field(json.dumps({"a": "x"})))

    assert section is not None
    assert section.take(described) == "x"
    for ask in (lambda: section.take(stranger), lambda: section.get("b"), lambda: "b" in section):
        with pytest.raises(KeyError):
            ask()


def _field(text: str) -> Field:
    report = Report("proxy.yaml")
    root = read_yaml(text, report)
    assert root is not None
    return Field(root, 1, "", "", report, {})


def test_every_section_says_what_it_is_for() -> None:
    assert all(keys.about.endswith(".") for _, keys in sections_below(ROOT, ""))
