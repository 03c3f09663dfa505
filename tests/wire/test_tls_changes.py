"""Certificates that change: new connections use the new ones, those that stand live on, and bad ones are refused."""

import asyncio
import ssl
from pathlib import Path

import pytest

from proxy.config import ConfigError, parse
from tests.certificates import Authority
from tests.wire.harness import BackendSide, call, client, config_text, read_head, running
from tests.wire.tls_sides import Place, place, secure_backend, secure_client, secure_text


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return place(tmp_path)


async def shown(port: int, context: ssl.SSLContext) -> bytes:
    """The certificate that a new connection is shown."""
    async with secure_client(port, context) as asking:
        found = asking.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(found, bytes)
        return found


async def test_files_that_changed_are_read_anew_though_the_text_is_the_same(here: Place) -> None:
    async with secure_backend(here.pair.serving()) as behind:
        text = secure_text(behind.port, listen=here.listen, tls=f"{{ca: {here.authority.file}}}")
        async with running(text) as proxy:
            before = await shown(proxy.port, here.client)
            async with secure_client(proxy.port, here.client) as standing:
                assert (await standing.ask(call())).status == 200
                here.authority.sign("proxy", "mcp.test", "127.0.0.1")
                assert await shown(proxy.port, here.client) == before, "not before it is told"
                proxy.apply(parse(text, "test.yaml", {}))
                assert await shown(proxy.port, here.client) != before
                assert (await standing.ask(call())).status == 200
            assert behind.connections == 1, "what is used towards backends did not change"


@pytest.mark.parametrize("broken", ("another key", "no certificate", "no file"))
async def test_bad_certificate_refuses_the_whole_and_the_old_one_serves_on(here: Place, broken: str) -> None:
    text = config_text(1, listen=here.listen)
    async with running(text) as proxy:
        before = await shown(proxy.port, here.client)
        if broken == "another key":
            here.pair.key.write_bytes(here.authority.sign("other", "a.test").key.read_bytes())
        elif broken == "no certificate":
            here.pair.certificate.write_text("hello")
        else:
            here.pair.key.unlink()
        with pytest.raises(ConfigError, match=str(here.pair.certificate.parent)):
            parse(text, "test.yaml", {})
        assert await shown(proxy.port, here.client) == before


async def test_files_that_break_between_check_and_use_change_nothing(here: Place) -> None:
    """The whole is refused: the pools stay as they are, too."""
    async with running(config_text(1, listen=here.listen)) as proxy:
        pools = dict(proxy.pools)
        here.authority.sign("proxy", "mcp.test")
        new = parse(config_text(1, 2, listen=here.listen), "test.yaml", {})
        here.pair.key.write_text("half a fi")
        with pytest.raises(ValueError, match="holds no private key"):
            proxy.apply(new)
        assert proxy.pools == pools and len(proxy.pools["agents"].members) == 1


async def test_new_authority_for_backends_counts_for_new_connections(here: Place, tmp_path: Path) -> None:
    """A stream that stands lives on; kept connections of the old trust are used no more."""
    stop = asyncio.Event()

    async def serve(side: BackendSide) -> None:
        while True:
            got = await side.request()
            if got.body == b"stream":
                side.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 4\r\n\r\n")
                await stop.wait()
                side.send(b"done")
            else:
                side.answer()

    other = Authority(tmp_path / "other")
    async with secure_backend(here.pair.serving(), serve) as behind:
        text = secure_text(behind.port, tls=f"{{ca: {here.authority.file}}}")
        async with running(text) as proxy, client(proxy.port) as streaming, client(proxy.port) as asking:
            streaming.send(call(body=b"stream"))
            await read_head(streaming.reader)
            assert (await asking.ask(call())).status == 200
            proxy.apply(parse(secure_text(behind.port, tls=f"{{ca: {other.file}}}"), "test.yaml", {}))
            assert (await asking.ask(call())).status == 502
            proxy.apply(parse(text, "test.yaml", {}))
            assert (await asking.ask(call())).status == 200
            stop.set()
            assert await asyncio.wait_for(streaming.reader.readexactly(4), 5) == b"done"


async def test_http_becomes_https_and_back(here: Place) -> None:
    async with secure_backend(here.pair.serving()) as behind:
        secure = secure_text(behind.port, tls=f"{{ca: {here.authority.file}}}")
        async with running(config_text(behind.port)) as proxy, client(proxy.port) as standing:
            assert (await standing.ask(call())).status == 502
            secure_listening = secure.replace("listen: 127.0.0.1:0", f"listen: {here.listen}")
            proxy.apply(parse(secure_listening, "test.yaml", {}))
            assert (await standing.ask(call())).status == 200, "a connection that stands stays as it is"
            async with secure_client(proxy.port, here.client) as asking:
                assert (await asking.ask(call())).status == 200
            proxy.apply(parse(secure, "test.yaml", {}))
            async with client(proxy.port) as asking:
                assert (await asking.ask(call())).status == 200


async def test_certificates_change_twenty_times_under_load(here: Place) -> None:
    """No request fails, neither on connections that stand nor on new ones."""
    async with secure_backend(here.pair.serving()) as behind:
        text = secure_text(behind.port, listen=here.listen, tls=f"{{ca: {here.authority.file}}}")
        async with running(text) as proxy:
            over = False
            statuses: list[int] = []

            async def keep_asking(*, anew: bool) -> None:
                while not over:
                    async with secure_client(proxy.port, here.client) as asking:
                        for _ in range(2 if anew else 10_000):
                            statuses.append((await asking.ask(call())).status)
                            if over:
                                break

            async with asyncio.TaskGroup() as load:
                for anew in (True, True, False, False):
                    load.create_task(keep_asking(anew=anew))
                for _ in range(20):
                    here.authority.sign("proxy", "mcp.test", "127.0.0.1")
                    proxy.apply(parse(text, "test.yaml", {}))
                    goal = len(statuses) + 20
                    while len(statuses) < goal:
                        await asyncio.sleep(0.001)
                over = True
            assert set(statuses) == {200} and len(statuses) >= 400
            assert sum(proxy.counts.snapshot().handshakes_failed.values()) == 0
