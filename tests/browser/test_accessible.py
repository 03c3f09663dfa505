"""axe-core, which npm brings, finds nothing in the dashboard that keeps people out."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.browsing import PHONE, POOLS, TOKEN, WIDE, Looker, Scheme, fleet_text, proxied
from tests.wire.harness import backend, call, client, config_text, running

HERE = Path(__file__).parent
INSTALL_LIMIT = 300.0  # seconds; of one small package


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script, installed as the lock file says."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm here, which brings axe-core; Debian's is `apt install npm`")
    folder = tmp_path_factory.mktemp("axe")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    install = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(install, cwd=folder, check=True, timeout=INSTALL_LIMIT, stdout=subprocess.DEVNULL)
    return (folder / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


async def found(page: Page, axe: str) -> list[str]:
    """Every rule that is broken, and where."""
    await page.evaluate(axe)
    result: dict[str, Any] = await page.evaluate("axe.run()")
    assert len(result["passes"]) > 10
    return [f"{one['id']}: {node['html'][:120]}" for one in result["violations"] for node in one["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=str)
async def test_the_page(looker: Looker, axe: str, scheme: Scheme, size: tuple[int, int]) -> None:
    pool = "      - {id: gone, url: 'http://127.0.0.1:9/mcp'}\n    balance: ring\n    ring_key: name"
    async with proxied(pool=pool) as proxy, client(proxy.port) as caller:
        await caller.ask(call())
        members = proxy.pools["agents"].members
        members[0].conduct.told([1e9])
        members[2].set_up(False)
        proxy.set_draining(pool="agents", backend="b", draining=True)
        page = await looker.open(proxy.admin_port, size=size, scheme=scheme, guarded=False)
        await expect(page.get_by_role("img", name="Requests by duration")).to_be_visible()
        await expect(page.get_by_role("img", name="Shares of new work")).to_be_visible()
        await page.get_by_role("button", name="Explain").click()
        await expect(page.locator("#answer")).not_to_be_empty()
        assert await found(page, axe) == []
        await page.get_by_role("button", name="Drain a", exact=True).click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        assert await found(page, axe) == []


async def test_a_pool_of_many(looker: Looker, axe: str) -> None:
    async with running(fleet_text(60)) as proxy:
        page = await looker.open(proxy.admin_port, guarded=False)
        await expect(page.get_by_text("60 backends take new work, from")).to_be_visible()
        assert await found(page, axe) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_page_that_gets_no_answer(looker: Looker, axe: str, scheme: Scheme) -> None:
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port, scheme=scheme, guarded=False, silent=True)
        await expect(page.locator("#trouble")).to_be_visible()
        assert await found(page, axe) == []
        await page.unroute_all(behavior="wait")
        await expect(page.locator("#trouble")).to_be_hidden()
        await page.context.set_offline(True)
        await expect(page.get_by_text("What is shown may be old.").first).to_be_visible()
        assert await found(page, axe) == []
        await page.close()  # it would ask on
        looker.complaints.clear()  # the browser's own lines about requests that failed


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_many_pools_and_losses(looker: Looker, axe: str, scheme: Scheme) -> None:
    async with backend() as a, running(config_text(a.port, **POOLS)) as proxy:
        proxy.set_draining(pool="p-2", backend="x", draining=True)
        page = await looker.open(proxy.admin_port, scheme=scheme, guarded=False)
        await expect(page.get_by_role("link", name="p-2 0 of 1")).to_be_visible()
        proxy.counts.unlearned("oversized")
        proxy.counts.searched("agents", "failed")
        await expect(page.get_by_text("Perhaps: look at what came")).to_be_visible()
        assert await found(page, axe) == []


async def test_the_question_for_the_token(looker: Looker, axe: str) -> None:
    admin = f"admin: {{address: '127.0.0.1:0', token: {TOKEN}}}"
    async with backend() as a, running(config_text(a.port).replace("admin: 127.0.0.1:0", admin)) as proxy:
        page = await looker.open(proxy.admin_port, guarded=False)
        await expect(page.get_by_role("dialog", name="The admin token")).to_be_visible()
        assert await found(page, axe) == []
        await page.close()
        looker.complaints.clear()  # that it was refused without a token
