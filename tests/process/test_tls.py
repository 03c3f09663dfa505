"""Certificates and real processes: checked, and read anew by SIGHUP, in one process and in several."""

import signal
from pathlib import Path

import pytest

from proxy.config.values import MOST_WORKERS
from tests.certificates import PAST
from tests.process.harness import END_LIMIT, config_text, run, serving, started
from tests.wire.harness import backend, call
from tests.wire.tls_sides import Place, place, secure_client


def text(here: Place, port: int, **settings: object) -> str:
    tls = {"certificate": here.pair.certificate.name, "key": here.pair.key.name}
    return config_text(port, listen={"address": "127.0.0.1:0", "tls": tls}, **settings)


@pytest.mark.parametrize("workers", (1, pytest.param(2, marks=pytest.mark.skipif(MOST_WORKERS < 2, reason="one"))))
async def test_hangup_reads_certificates_anew_and_refuses_bad_ones(tmp_path: Path, workers: int) -> None:
    here = place(tmp_path)
    async with backend() as behind:
        file = tmp_path / "proxy.yaml"
        file.write_text(text(here, behind.port, workers=workers))
        with started("serve", "-c", str(file)) as command:
            proxy = await serving(command)

            async def shown() -> set[bytes]:
                """The certificates that 20 connections are shown, each of which gets an answer."""
                found = set()
                for _ in range(20):
                    async with secure_client(proxy.port, here.client) as asking:
                        assert (await asking.ask(call())).status == 200
                        found.add(asking.writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
                return found

            (first,) = await shown()
            whole = here.pair.key.read_bytes()
            here.pair.key.write_text("torn")
            command.signal(signal.SIGHUP)
            await proxy.until_count(1, "config_reloads_total", outcome="refused")
            assert await shown() == {first}
            assert "proxy.key holds no private key in PEM" in command.complaints

            here.pair.key.write_bytes(whole)
            here.authority.sign("proxy", "mcp.test")
            command.signal(signal.SIGHUP)
            await proxy.until_count(1, "config_reloads_total", outcome="ok")
            for _ in range(int(END_LIMIT * 10)):
                now = await shown()
                if first not in now:
                    break
            assert len(now) == 1 and first not in now
            command.terminate()
            assert await command.ended() == 0


async def test_check_warns_of_what_will_be_refused(tmp_path: Path) -> None:
    here = place(tmp_path)
    here.authority.sign("proxy", "mcp.test", valid=PAST)
    (tmp_path / "proxy.yaml").write_text(text(here, 1))
    ended = await run("check", str(tmp_path / "proxy.yaml"))
    assert ended.code == 0
    assert f"# Warning: listen.tls.certificate: {here.pair.certificate} has expired" in ended.output


async def test_check_names_the_file_that_is_missing(tmp_path: Path) -> None:
    here = place(tmp_path)
    here.pair.key.unlink()
    (tmp_path / "proxy.yaml").write_text(text(here, 1))
    ended = await run("check", str(tmp_path / "proxy.yaml"))
    assert ended.code == 2
    assert f"{here.pair.key} cannot be read: No such file or directory" in ended.complaints
