"""The contract of DiscoverySource, over every source: complete sets now and again, and one known failure."""

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol

import pytest

from proxy.config.addresses import bracketed
from proxy.config.values import DnsRecipe, FileRecipe
from proxy.discovery.dns import DnsSource
from proxy.discovery.file import FileSource
from proxy.discovery.source import DiscoveryFailure, DiscoverySource, Found
from tests.discovery.dns_server import NameServer, name_server
from tests.wire.harness import PATIENCE

PORT = 8000


class World(Protocol):
    """What a source looks at."""

    @property
    def source(self) -> DiscoverySource: ...

    def hold(self, addresses: Sequence[str]) -> None:
        """These are there from now on."""

    def fail(self) -> None:
        """Nothing can be told from now on, until something is there again."""


class OfDns:
    def __init__(self, server: NameServer) -> None:
        self.server = server
        recipe = DnsRecipe("agents.test", PORT, "/here", resolver=("127.0.0.1", server.port))
        self.source = DnsSource(recipe, chance=lambda: 0.0, lifetime=2.0)

    def hold(self, addresses: Sequence[str]) -> None:
        self.server.code = "NOERROR"
        self.server.names = {"agents.test": tuple(addresses)}

    def fail(self) -> None:
        self.server.code = "SERVFAIL"


class OfFiles:
    def __init__(self, folder: Path, suffix: str) -> None:
        self.file = folder / f"targets{suffix}"
        self.source = FileSource(FileRecipe(folder / f"*{suffix}", "/here"), look=0.01)

    def hold(self, addresses: Sequence[str]) -> None:
        groups = [{"targets": [f"{bracketed(address)}:{PORT}"], "labels": {"zone": "a"}} for address in addresses]
        put(self.file, json.dumps(groups))  # JSON is YAML as well

    def fail(self) -> None:
        put(self.file, "{nothing of the kind")


def put(file: Path, text: str) -> None:
    """Replaces a file whole."""
    beside = file.with_suffix(".new")
    beside.write_text(text)
    os.replace(beside, file)


@contextmanager
def world(kind: str, folder: Path) -> Iterator[World]:
    if kind == "dns":
        with name_server() as server:
            yield OfDns(server)
    else:
        yield OfFiles(folder, kind)


KINDS = ("dns", ".json", ".yaml", ".yml")


async def until_found(source: DiscoverySource, hosts: set[str]) -> Found:
    async with asyncio.timeout(PATIENCE), aclosing(source.watch()) as answers:
        async for found in answers:
            if {one.host for one in found} == hosts:
                return found
    raise AssertionError("the source came to an end")


@pytest.mark.parametrize("kind", KINDS)
async def test_sets_are_complete_and_follow_what_is_there(kind: str, tmp_path: Path) -> None:
    with world(kind, tmp_path) as there:
        for hosts in (["127.0.0.1"], ["127.0.0.2", "127.0.0.1", "::1"], ["127.0.0.2"], [], ["::1"]):
            there.hold(hosts)
            found = await until_found(there.source, set(hosts))
            assert len({one.id for one in found}) == len(found)


@pytest.mark.parametrize("kind", KINDS)
async def test_one_watch_tells_of_changes(kind: str, tmp_path: Path) -> None:
    with world(kind, tmp_path) as there:
        there.hold(["127.0.0.1"])
        async with asyncio.timeout(PATIENCE), aclosing(there.source.watch()) as answers:
            assert [one.host for one in await anext(answers)] == ["127.0.0.1"]
            assert [one.host for one in await anext(answers)] == ["127.0.0.1"]  # also where nothing has changed
            there.hold(["127.0.0.1", "127.0.0.2"])
            async for found in answers:
                if len(found) == 2:
                    break


@pytest.mark.parametrize("kind", KINDS)
async def test_ids_follow_the_address_and_nothing_else(kind: str, tmp_path: Path) -> None:
    with world(kind, tmp_path) as there:
        there.hold(["127.0.0.2", "::1", "127.0.0.1"])
        found = await until_found(there.source, {"127.0.0.1", "127.0.0.2", "::1"})
        assert {one.id for one in found} == {f"127.0.0.1:{PORT}", f"127.0.0.2:{PORT}", f"[::1]:{PORT}"}
        there.hold(["127.0.0.1", "127.0.0.2", "::1"])
        assert await until_found(there.source, {"127.0.0.1", "127.0.0.2", "::1"}) == found
        for one in found:
            assert (one.port, one.path, one.weight, one.drain, one.tls) == (PORT, "/here", 1, False, False)
            assert one.discovered
            assert one.authority == one.id
            ip_address(one.host)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failure_is_told_and_may_pass(kind: str, tmp_path: Path) -> None:
    with world(kind, tmp_path) as there:
        there.fail()
        for _ in range(2):
            async with asyncio.timeout(PATIENCE), aclosing(there.source.watch()) as answers:
                with pytest.raises(DiscoveryFailure):
                    await anext(answers)
        there.hold(["127.0.0.1"])
        await until_found(there.source, {"127.0.0.1"})
        there.fail()
        with pytest.raises(DiscoveryFailure):
            await until_found(there.source, {"nobody"})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_watch_can_be_left_at_any_time(kind: str, tmp_path: Path) -> None:
    with world(kind, tmp_path) as there:
        there.hold(["127.0.0.1"])
        for delay in (0.0, 0.001, 0.01, 0.05):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(delay):
                    await until_found(there.source, {"nobody"})
        await until_found(there.source, {"127.0.0.1"})
