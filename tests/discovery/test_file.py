"""What is particular to files: what they may say, many of them, links, and the mistakes that keep the last set."""

import asyncio
import json
import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from proxy.config.values import FileRecipe
from proxy.discovery.file import FileSource, backends_in
from proxy.discovery.source import DiscoveryFailure, Found
from tests.discovery.test_sources import put

RECIPE = FileRecipe(Path("/targets.json"))


async def look(source: FileSource) -> Found:
    async with aclosing(source.watch()) as answers:
        return await anext(answers)


def ids(found: Found) -> list[str]:
    return [one.id for one in found]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], []),
        ([{"targets": []}], []),
        ([{"targets": ["a:1", "[::1]:2"], "labels": {"env": "prod", "__meta_x": "y"}}], [("a:1", 1), ("[::1]:2", 1)]),
        ([{"targets": ["a:1"], "labels": {"__weight__": "7"}}, {"targets": ["b:1"]}], [("a:1", 7), ("b:1", 1)]),
        ([{"targets": ["A.Test"], "labels": None}], [("a.test:80", 1)]),
        ([{"targets": ["a:1"], "labels": {"__scheme__": "http"}}], [("a:1", 1)]),
    ],
)
def test_targets_become_backends(groups: Any, expected: list[tuple[str, int]]) -> None:
    assert [(one.id, one.weight) for one in backends_in(groups, RECIPE)] == expected


def test_labels_of_our_own() -> None:
    labels = {"__weight__": "2", "__drain__": "True", "__mcp_path__": "/x"}
    (found,) = backends_in([{"targets": ["a"], "labels": labels}], FileRecipe(Path("/t.json"), tls=True))
    assert (found.port, found.weight, found.drain, found.path, found.tls) == (443, 2, True, "/x", True)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, "found a mapping; allowed: a list of {targets, labels}"),
        (None, "found nothing; allowed: a list of {targets, labels}"),
        (["a:1"], "found 'a:1'; allowed: {targets, labels}"),
        ([{"labels": {}}], "found nothing; allowed: targets: a list"),
        ([{"targets": "a:1"}], "found 'a:1'; allowed: targets: a list"),
        ([{"targets": ["http://a"]}], "found the target 'http://a'; allowed: HOST:PORT"),
        ([{"targets": ["a:0"]}], "found the target 'a:0'; allowed: HOST:PORT"),
        ([{"targets": [7]}], "found the target '7'; allowed: HOST:PORT"),
        ([{"targets": ["a"], "labels": []}], None),
        ([{"targets": ["a"], "labels": ["x"]}], "found a list; allowed: labels: a mapping"),
        (
            [{"targets": [], "labels": {"__scheme__": "https"}}],
            "found __scheme__ 'https'; allowed: http, as configured",
        ),
        (
            [{"targets": [], "labels": {"__weight__": "0"}}],
            "found __weight__ '0'; allowed: an integer from 1 to 1000",
        ),
        ([{"targets": [], "labels": {"__drain__": "no"}}], "found __drain__ 'no'; allowed: true, false"),
        (
            [{"targets": [], "labels": {"__mcp_path__": "/a?b"}}],
            "found __mcp_path__ '/a?b'; allowed: a path of plain segments",
        ),
    ],
)
def test_what_is_not_understood_is_refused_whole(groups: Any, message: str | None) -> None:
    if message is None:
        assert len(list(backends_in(groups, RECIPE))) == 1
        return
    with pytest.raises(ValueError) as error:
        list(backends_in(groups, RECIPE))
    assert str(error.value) == message


async def test_all_files_together_are_the_set_and_of_two_the_first_counts(tmp_path: Path) -> None:
    source = FileSource(FileRecipe(tmp_path / "*.json"))
    put(tmp_path / "b.json", json.dumps([{"targets": ["a:1", "c:1"]}]))
    put(tmp_path / "a.json", json.dumps([{"targets": ["a:1", "b:1"], "labels": {"__weight__": "5"}}]))
    put(tmp_path / "c.yaml", "nobody asks for this")
    found = await look(source)
    assert [(one.id, one.weight) for one in found] == [("a:1", 5), ("b:1", 5), ("c:1", 1)]
    (tmp_path / "a.json").unlink()
    assert ids(await look(source)) == ["a:1", "c:1"]


async def test_yaml_as_people_write_it(tmp_path: Path) -> None:
    put(
        tmp_path / "t.yml",
        "- targets:\n  - a:1\n  - '[::1]:2'\n  labels: {env: prod, __weight__: 3}\n- targets: [b:1]\n",
    )
    found = await look(FileSource(FileRecipe(tmp_path / "t.yml")))
    assert [(one.id, one.weight) for one in found] == [("[::1]:2", 3), ("a:1", 3), ("b:1", 1)]


async def test_a_link_that_is_exchanged_is_a_change(tmp_path: Path) -> None:
    """As a ConfigMap is put in place."""
    for turn, target in enumerate(("a:1", "b:1")):
        (tmp_path / f"v{turn}").mkdir()
        (tmp_path / f"v{turn}" / "t.json").write_text(json.dumps([{"targets": [target]}]))
    (tmp_path / "..data").symlink_to("v0")
    (tmp_path / "t.json").symlink_to("..data/t.json")
    source = FileSource(FileRecipe(tmp_path / "t.json"))
    assert ids(await look(source)) == ["a:1"]
    (tmp_path / "..new").symlink_to("v1")
    os.replace(tmp_path / "..new", tmp_path / "..data")
    assert ids(await look(source)) == ["b:1"]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("t.json", "", "malformed"),
        ("t.json", '[{"targets": ["a:1"', "malformed"),
        ("t.json", "\udcff", "malformed"),
        ("t.json", "[" * 100_000, "malformed"),
        ("t.yaml", "", "malformed"),
        ("t.yaml", "- targets: [a:1", "malformed"),
        ("t.yaml", "[" * 1000, "malformed"),
        ("t.yaml", "- targets: !!python/name:os.system [a]", "malformed"),
        ("t.json", " " * (4 * 1024 * 1024 + 1), "unreadable"),
        ("other", "[]", "no_file"),
    ],
)
async def test_what_cannot_be_read_is_a_failure_that_says_which_file(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DiscoveryFailure) as failure:
        await look(FileSource(FileRecipe(tmp_path / ("t.*" if name == "other" else name))))
    assert failure.value.reason == reason
    assert str(tmp_path) in str(failure.value)


async def test_one_bad_file_among_good_ones_is_a_failure(tmp_path: Path) -> None:
    put(tmp_path / "a.json", json.dumps([{"targets": ["a:1"]}]))
    source = FileSource(FileRecipe(tmp_path / "*.json"))
    assert ids(await look(source)) == ["a:1"]
    put(tmp_path / "b.json", "[")
    with pytest.raises(DiscoveryFailure, match=r"b\.json: Expecting value"):
        await look(source)
    put(tmp_path / "b.json", "[]")
    assert ids(await look(source)) == ["a:1"]


async def test_a_folder_in_place_of_a_file_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "t.json").mkdir()
    with pytest.raises(DiscoveryFailure) as failure:
        await look(FileSource(FileRecipe(tmp_path / "t.json")))
    assert failure.value.reason == "unreadable"


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "device"])
async def test_what_is_no_regular_file_is_a_failure_and_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    """Opening a pipe waits for somebody who writes, and nobody may."""
    target = tmp_path / "t.json"
    if kind == "device":
        target.symlink_to("/dev/zero")
    else:
        pipe = target if kind == "pipe" else tmp_path / "pipe"
        os.mkfifo(pipe)
        if kind == "link to a pipe":
            target.symlink_to(pipe)
    async with asyncio.timeout(5):
        with pytest.raises(DiscoveryFailure) as failure:
            await look(FileSource(FileRecipe(target)))
    assert failure.value.reason == "unreadable"
    assert str(failure.value) == f"{target}: no regular file"
