"""The configuration is put in force by command, and with `--watch` when its files change; all of it or nothing."""

import os
from pathlib import Path

import pytest

from tests.process.harness import config_text
from tests.process.lives import life
from tests.wire.harness import backend

IN_FORCE, REFUSED = "the new configuration is in force", "the new configuration is refused"


@pytest.mark.parametrize("workers", [1, 2])
async def test_by_command_a_good_file_is_put_in_force_and_a_bad_one_refused(workers: int) -> None:
    async with backend() as server, life(config_text(server.port, workers=workers)) as one:
        one.file.write_text(config_text(server.port, server.port, workers=workers))
        assert await one.post("/api/reload") == (200, {"reloaded": True})
        assert len((await one.pools())[0]["backends"]) == 2
        one.file.write_text("pools: nonsense\nroutes: []")
        status, told = await one.post("/api/reload")
        assert (status, told["error"]) == (409, "the configuration is refused")
        assert "pools: found 'nonsense'" in told["mistakes"]
        assert len((await one.pools())[0]["backends"]) == 2
        assert await one.count("config_reloads_total", outcome="ok") == 1
        assert await one.count("config_reloads_total", outcome="refused") == 1


async def test_what_only_a_restart_can_change_is_named() -> None:
    async with backend() as server, life(config_text(server.port)) as one:
        one.file.write_text(config_text(server.port, log={"access": True}))
        status, told = await one.post("/api/reload")
        assert (status, told["mistakes"]) == (409, "only a restart can change log")


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_watched_file_is_put_in_force_when_it_changes(workers: int) -> None:
    async with backend() as server, life(config_text(server.port, workers=workers), "--watch") as one:
        one.file.write_text("pools: nonsense")
        await one.until_said(REFUSED)
        one.file.write_text(config_text(server.port, server.port, workers=workers))
        await one.until_said(IN_FORCE)
        assert len((await one.pools())[0]["backends"]) == 2
        assert one.said(REFUSED) == 1  # the bad file was told of once
        await one.reload(config_text(server.port, workers=workers))  # by a signal, it is not read once more by itself
        one.file.write_text(config_text(server.port, server.port, server.port, workers=workers))
        await one.until_said(IN_FORCE, 3)
        assert one.said(IN_FORCE) == 3


async def test_a_watched_config_map_is_put_in_force_when_its_links_are_exchanged(tmp_path: Path) -> None:
    async with backend() as server:
        for number in (1, 2):
            folder = tmp_path / f"..{number}"
            folder.mkdir()
            (folder / "proxy.yaml").write_text(config_text(*[server.port] * number))
        os.symlink("..1", tmp_path / "..data")
        os.symlink(Path("..data", "proxy.yaml"), tmp_path / "proxy.yaml")
        async with life("", "--watch", file=tmp_path / "proxy.yaml") as one:
            os.symlink("..2", tmp_path / "..data_tmp")
            os.rename(tmp_path / "..data_tmp", tmp_path / "..data")
            await one.until_said(IN_FORCE)
            assert len((await one.pools())[0]["backends"]) == 2
