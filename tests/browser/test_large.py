"""The dashboard weighs little, and stays quick where backends are many."""

import pytest
from playwright.async_api import Page, expect

from tests.browser.browsing import PHONE, Looker, fleet_text
from tests.wire.harness import backend, config_text, running

MANY = 1000
MOST_MILLISECONDS = 2000
MOST_BYTES = 100_000
LOOKS = 5  # at most, until one is in time: the machine may have other work

LOADED = """[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .filter((one) => !one.name.includes('/api/')).map((one) => one.decodedBodySize)"""
# Since the navigation began; two frames on, what was built has been drawn.
DRAWN = f"""() => document.querySelectorAll('#pools tbody tr').length === {MANY} && new Promise((resolve) =>
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now()))))"""


async def test_the_whole_page_weighs_little(looker: Looker) -> None:
    async with backend() as a, running(config_text(a.port)) as proxy:
        page = await looker.open(proxy.admin_port)
        await expect(page.get_by_role("img", name="Shares of new work")).to_be_visible()
        sizes = await page.evaluate(LOADED)
        assert len(sizes) > 5 and all(sizes)
        assert sum(sizes) < MOST_BYTES


async def time_to_draw(page: Page) -> float:
    """Milliseconds from the beginning of the navigation until all backends are drawn."""
    seen = await page.wait_for_function(DRAWN)
    return float(await seen.json_value())


@pytest.mark.parametrize("pool", [{}, {"balance": "ring", "ring_key": "name"}], ids=["policy", "ring"])
async def test_a_thousand_backends_are_drawn_in_time_and_scroll(looker: Looker, pool: dict[str, object]) -> None:
    async with running(fleet_text(MANY, **pool)) as proxy:
        page = await looker.open(proxy.admin_port)
        times = [await time_to_draw(page)]
        while min(times) >= MOST_MILLISECONDS and len(times) < LOOKS:
            await page.reload()
            times.append(await time_to_draw(page))
        assert min(times) < MOST_MILLISECONDS, times
        await expect(page.get_by_text("1,000 backends take new work, from")).to_be_visible()
        region = page.get_by_role("region", name="Backends of agents")
        last = page.get_by_role("button", name="Drain agent-0999")
        await expect(last).not_to_be_in_viewport()
        await region.focus()
        await page.keyboard.press("End")
        await expect(last).to_be_in_viewport()
        assert await page.get_by_role("columnheader", name="In flight").first.is_visible()


async def test_one_of_many_is_found_and_what_was_chosen_stays(looker: Looker) -> None:
    async with running(fleet_text(MANY)) as proxy:
        for number in (7, 77, 777):
            proxy.set_draining(pool="agents", backend=f"agent-{number:04}", draining=True)
        page = await looker.open(proxy.admin_port, size=PHONE)
        await page.get_by_role("combobox", name="State").select_option("empty")
        await expect(page.get_by_text("3 of 1,000 shown")).to_be_visible()
        await page.get_by_label("Id or address").fill("AGENT-07")
        await expect(page.get_by_text("1 of 1,000 shown")).to_be_visible()
        proxy.set_draining(pool="agents", backend="agent-0778", draining=True)
        await expect(page.get_by_text("2 of 1,000 shown")).to_be_visible()
        await page.get_by_label("Id or address").fill("")
        await page.get_by_role("combobox", name="State").select_option("any state")
        await page.get_by_role("combobox", name="Order").select_option("trouble first")
        first = page.get_by_role("table", name="Backends of pool agents").get_by_role("row").nth(1)
        await expect(first).to_contain_text("agent-0007")
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
