"""What is particular to names: expiry, both families, aliases, large answers, name servers that fail."""

from contextlib import aclosing
from pathlib import Path

import dns.asyncresolver
import dns.resolver
import pytest

from proxy.config.values import DnsRecipe
from proxy.discovery.dns import LONGEST, SHORTEST, DnsSource, pause
from proxy.discovery.source import DiscoveryFailure, Found
from tests.discovery.dns_server import NameServer, name_server
from tests.wire.harness import closed_port

NAME = "agents.test"


def source_at(server: NameServer, *, tls: bool = False) -> DnsSource:
    recipe = DnsRecipe(NAME, 8000, tls=tls, resolver=("127.0.0.1", server.port))
    return DnsSource(recipe, chance=lambda: 0.0, lifetime=1.0)


async def look(source: DnsSource) -> Found:
    async with aclosing(source.watch()) as answers:
        return await anext(answers)


async def hosts(source: DnsSource) -> list[str]:
    return [one.host for one in await look(source)]


@pytest.mark.parametrize(
    ("ttl", "chance", "seconds"),
    [(0, 0, SHORTEST), (0.5, 0, 1), (5, 0, 5), (30, 1, 33), (30, 0.5, 31.5), (86_400, 0, LONGEST), (2**31, 1, 66)],
)
def test_the_next_look_comes_when_the_records_have_expired(ttl: float, chance: float, seconds: float) -> None:
    assert pause(ttl, chance) == pytest.approx(seconds)


async def test_both_families_are_asked_for_and_put_in_order() -> None:
    with name_server(agents_test=["::2", "127.0.0.10", "::1", "127.0.0.9"]) as server:
        assert await hosts(source_at(server)) == ["127.0.0.9", "127.0.0.10", "::1", "::2"]
        assert sorted(server.asked) == [(NAME, "A", "udp"), (NAME, "AAAA", "udp")]


async def test_backends_go_by_the_name_that_was_asked_for() -> None:
    with name_server(agents_test=["127.0.0.1"]) as server:
        (found,) = await look(source_at(server, tls=True))
        assert (found.name, found.host_field, found.origin) == (NAME, "agents.test:8000", "https://127.0.0.1:8000")


async def test_aliases_are_followed() -> None:
    with name_server(agents_test=["=b.test"], b_test=["=c.test"], c_test=["127.0.0.1"]) as server:
        assert await hosts(source_at(server)) == ["127.0.0.1"]


@pytest.mark.parametrize("names", [{}, {NAME: []}])
async def test_no_name_and_no_address_are_answers(names: dict[str, list[str]]) -> None:
    with name_server() as server:
        server.names = dict(names)
        assert await hosts(source_at(server)) == []


async def test_one_family_alone_is_enough() -> None:
    with name_server(agents_test=["127.0.0.1"]) as server:
        server.families = {"AAAA": "SERVFAIL"}
        assert await hosts(source_at(server)) == ["127.0.0.1"]


async def test_a_family_that_fails_keeps_its_addresses() -> None:
    with name_server(agents_test=["127.0.0.1", "::1"]) as server:
        source = source_at(server)
        assert await hosts(source) == ["127.0.0.1", "::1"]
        server.families = {"AAAA": "SERVFAIL"}
        server.names = {NAME: ["127.0.0.2"]}
        assert await hosts(source) == ["127.0.0.2", "::1"]
        server.families = {}
        assert await hosts(source) == ["127.0.0.2"]


async def test_one_family_empty_and_the_other_failing_is_no_answer() -> None:
    with name_server(agents_test=["::1"]) as server:
        server.families = {"AAAA": "SERVFAIL"}
        with pytest.raises(DiscoveryFailure):
            await look(source_at(server))


async def test_large_answers_come_whole_over_tcp() -> None:
    many = [f"127.0.{number // 250}.{number % 250 + 1}" for number in range(400)]
    with name_server(agents_test=many) as server:
        assert sorted(await hosts(source_at(server))) == sorted(many)
        assert (NAME, "A", "tcp") in server.asked


@pytest.mark.parametrize("code", ["SERVFAIL", "REFUSED", "NOTIMP"])
async def test_an_error_is_a_failure(code: str) -> None:
    with name_server(agents_test=["127.0.0.1"]) as server:
        server.code = code
        with pytest.raises(DiscoveryFailure) as failure:
            await look(source_at(server))
        assert failure.value.reason == "servfail"


async def test_silence_is_a_failure() -> None:
    with name_server(agents_test=["127.0.0.1"]) as server:
        server.silent = True
        with pytest.raises(DiscoveryFailure, match="no answer within 1 s") as failure:
            await look(source_at(server))
        assert failure.value.reason == "timeout"


async def test_a_port_where_nobody_listens_is_a_failure() -> None:
    recipe = DnsRecipe(NAME, 8000, resolver=("127.0.0.1", closed_port()))
    with pytest.raises(DiscoveryFailure):
        await look(DnsSource(recipe, lifetime=1.0))


async def test_addresses_that_nobody_can_be_at_are_left_out() -> None:
    with name_server(agents_test=["0.0.0.0", "127.0.0.1", "224.0.0.1", "::", "ff02::1"]) as server:
        assert await hosts(source_at(server)) == ["127.0.0.1"]


async def test_the_system_s_resolver_is_asked_with_its_search_domains(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with name_server(agents_ns_test=["127.0.0.1"]) as server:
        file = tmp_path / "resolv.conf"
        file.write_text("nameserver 127.0.0.1\nsearch other.test ns.test\noptions ndots:5\n")
        system = dns.asyncresolver.Resolver

        def configured(*, configure: bool) -> dns.asyncresolver.Resolver:
            assert configure
            resolver = system(str(file))
            resolver.port = server.port  # resolv.conf has none
            return resolver

        monkeypatch.setattr(dns.asyncresolver, "Resolver", configured)
        assert await hosts(DnsSource(DnsRecipe("agents", 8000), lifetime=2.0)) == ["127.0.0.1"]


async def test_a_system_without_a_resolver_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: bool) -> dns.asyncresolver.Resolver:
        raise dns.resolver.NoResolverConfiguration

    monkeypatch.setattr(dns.asyncresolver, "Resolver", none)
    with pytest.raises(DiscoveryFailure) as failure:
        await look(DnsSource(DnsRecipe(NAME, 8000)))
    assert failure.value.reason == "no_resolver"
