"""A real browser that looks at a proxy's dashboard."""

import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from playwright.async_api import Browser, ConsoleMessage, Locator, Page, async_playwright, expect

from proxy.app import Proxy
from proxy.routing.ownership import pin_key
from tests.wire.harness import backend, config_text, running

PATIENCE = 20_000.0  # milliseconds; a browser on a machine that has much else to do
SWITCHES = [
    # What is not of the page stays off: the browser is to speak with this machine alone.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
]
WIDE, PHONE = (1280, 900), (375, 800)
Scheme = Literal["light", "dark"]
TOKEN = "an-admin-token"
POOLS = {
    "pool": "\n".join(f"  p-{n}:\n    backends: [{{id: x, url: 'http://127.0.0.1:9/mcp'}}]" for n in range(6)),
    "routes": f"  - {{name: rest, split: {{agents: 1, {', '.join(f'p-{n}: 1' for n in range(6))}}}}}",
}
"""Six pools more, of one backend each."""

expect.set_options(timeout=PATIENCE)


class Looker:
    """A browser with one window after another; what the console complained of is kept."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.complaints: list[str] = []

    async def open(
        self,
        admin_port: int,
        *,
        size: tuple[int, int] = WIDE,
        scheme: Scheme = "light",
        guarded: bool = True,
        silent: bool = False,
    ) -> Page:
        """A window of a profile of its own, at the dashboard.

        `guarded`: the page's own policy for scripts holds. `silent`: what the page asks for is not answered.
        """
        context = await self._browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            bypass_csp=not guarded,
            reduced_motion="reduce",
        )
        context.set_default_timeout(PATIENCE)
        page = await context.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        if silent:
            await page.route("**/api/**", lambda route: route.abort())
        await page.goto(f"http://127.0.0.1:{admin_port}/")
        return page

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@asynccontextmanager
async def looking() -> AsyncIterator[Looker]:
    """A browser. It is ended at the end."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no browser here; Debian's is `apt install chromium`")
    # Chromium has no sandbox for root.
    switches = [*SWITCHES, "--no-sandbox"] if os.geteuid() == 0 else SWITCHES
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=switches)
        try:
            yield Looker(browser)
        finally:
            await browser.close()


def fleet_text(count: int, **pool: object) -> str:
    """A configuration with one pool of so many backends, which nobody is to ask anything. JSON is YAML as well."""
    backends = [
        {"id": f"agent-{number:04}", "url": f"http://10.{number // 250}.{number % 250}.1:8000/mcp"}
        for number in range(count)
    ]
    return json.dumps(
        {
            "listen": "127.0.0.1:0",
            "admin": "127.0.0.1:0",
            "log": {"access": False},
            "drain": "0s",
            "pools": {"agents": {"backends": backends, **pool}},
            "routes": [{"name": "rest", "pool": "agents"}],
        }
    )


@asynccontextmanager
async def proxied(pool: str = "", top: str = "") -> AsyncIterator[Proxy]:
    """A proxy in front of two backends, a and b; a holds two tasks."""
    async with backend() as a, backend() as b, running(config_text(a.port, b.port, pool=pool, top=top)) as proxy:
        for task in ("t-1", "t-2"):
            proxy.pins.put(pin_key("agents", task), "agents", "a", ttl=None)
        yield proxy


def row(page: Page, backend_id: str) -> Locator:
    rows = page.get_by_role("table", name="Backends of pool agents").locator("tbody").get_by_role("row")
    return rows.filter(has=page.locator(".name").get_by_text(backend_id, exact=True))


async def cells(page: Page, backend_id: str) -> dict[str, str]:
    """What stands in a backend's row, by the heads of the columns."""
    table = page.get_by_role("table", name="Backends of pool agents")
    heads = await table.get_by_role("columnheader").all_inner_texts()
    line = row(page, backend_id)
    texts = [await line.get_by_role("rowheader").inner_text(), *await line.get_by_role("cell").all_inner_texts()]
    return dict(zip(heads, texts, strict=True))
