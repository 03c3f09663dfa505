"""What can be done with the dashboard, in a real browser."""

import re

import pytest
from playwright.async_api import Page, expect

from proxy.app import Proxy
from tests.browser.browsing import PHONE, WIDE, Looker, proxied, row
from tests.wire.harness import call, client, until

"""The dashboard in a real browser: what it shows, and what can be done with it."""


HOSTILE = "<b>&amp;%41?#"


def is_draining(proxy: Proxy, backend_id: str) -> bool:
    member = proxy.pools["agents"].member(backend_id)
    assert member is not None
    return member.draining


async def test_a_backend_is_drained_and_undrained_by_keyboard_alone(looker: Looker) -> None:
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        await expect(row(page, "a")).to_contain_text("up")
        await tab_to(page, "Drain a")
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="Drain a?")
        await expect(dialog).to_contain_text("2 tasks")
        await expect(dialog).to_contain_text("b 50.0\u00a0% → 100.0\u00a0%")
        await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        assert not is_draining(proxy, "a")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(dialog).to_be_hidden()
        assert is_draining(proxy, "a")
        await expect(page.locator("#announcer")).to_have_text("a takes no new work. It holds 2 tasks.")
        await expect(page.get_by_role("button", name="Undrain a")).to_be_focused()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await until(lambda: not is_draining(proxy, "a"))
        await expect(page.get_by_role("button", name="Drain a", exact=True)).to_be_focused()


async def tab_to(page: Page, name: str) -> None:
    """Goes on with the Tab key until something of this name has the focus."""
    for _ in range(40):
        await page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if name in (await focused.get_attribute("aria-label"), await focused.inner_text()):
            return
    pytest.fail(f"{name} is not reached by Tab")


@pytest.mark.parametrize("key", ["Escape", "Enter"])
async def test_nothing_is_drained_that_was_not_confirmed(looker: Looker, key: str) -> None:
    """Enter: the focus is on what does nothing."""
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        button = page.get_by_role("button", name="Drain b")
        await button.click()
        await page.keyboard.press(key)
        await expect(page.get_by_role("dialog")).to_be_hidden()
        await expect(button).to_be_focused()
        assert not is_draining(proxy, "b")


async def test_who_drains_the_last_one_is_warned(looker: Looker) -> None:
    async with proxied() as proxy:
        proxy.set_draining(pool="agents", backend="b", draining=True)
        page = await looker.open(proxy.admin_port)
        await page.get_by_role("button", name="Drain a", exact=True).click()
        await expect(page.get_by_role("dialog", name="Drain a?")).to_contain_text("503 no_backend")


async def test_a_drain_that_is_refused_says_why(looker: Looker) -> None:
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        await page.get_by_role("button", name="Drain b").click()
        await page.route("**/drain", lambda route: route.fulfill(status=503, json={"error": "not now"}))
        await page.get_by_role("dialog").get_by_role("button", name="Drain b").click()
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text("not now")
        assert looker.complaints.pop().endswith("503 (Service Unavailable)")


async def test_names_are_text_and_nothing_else(looker: Looker) -> None:
    pool = f"      - {{id: '{HOSTILE}', url: 'http://127.0.0.1:9/mcp'}}"
    async with proxied(pool=pool) as proxy:
        page = await looker.open(proxy.admin_port)
        await expect(row(page, HOSTILE)).to_be_visible()
        assert await page.locator("td b, th b, dialog b").count() == 0
        await page.get_by_role("button", name=f"Drain {HOSTILE}").click()
        await page.get_by_role("dialog").get_by_role("button", name=f"Drain {HOSTILE}").click()
        await until(lambda: is_draining(proxy, HOSTILE))


async def test_a_task_is_found(looker: Looker) -> None:
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        await page.get_by_label("Task id").fill("t-1")
        await page.keyboard.press("Enter")
        answer = page.get_by_role("region", name="Where would it go?").get_by_role("status")
        await expect(answer).to_contain_text("Backend a of pool agents, by the task's pin.")
        await expect(answer).to_contain_text(re.compile(r"As of \d\d:\d\d:\d\d"))
        await expect(answer).not_to_contain_text("t-1")
        await page.get_by_label("Task id").fill("nobody's")
        await page.get_by_role("button", name="Explain").click()
        await expect(answer).to_contain_text("The owner is not known. 2 backends are asked at once")


@pytest.mark.parametrize(
    ("kind", "label", "name", "said"),
    [
        ("A call of a tool", "Tool name", "whoami", "Pool agents: least_in_flight picks one."),
        ("A call of a tool", "Tool name", "日本 ", "Pool agents: least_in_flight picks one."),
        ("A request in a legacy session", "Session id", "0123456789.x", "Refused: 404 session_owner_gone"),
    ],
)
async def test_other_requests_are_explained(looker: Looker, kind: str, label: str, name: str, said: str) -> None:
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        await page.get_by_role("combobox", name="Request").select_option(label=kind)
        await page.get_by_label(label, exact=True).fill(name)
        await page.get_by_role("button", name="Explain").click()
        await expect(page.locator("#answer")).to_contain_text(said)


async def test_any_head_is_explained_and_one_that_is_none_refused(looker: Looker) -> None:
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        await page.get_by_role("combobox", name="Request").select_option(label="Any head, written below")
        await page.get_by_label("One field a line").fill("Mcp-Method: ping\nMcp-Method: ping")
        await page.get_by_role("button", name="Explain").click()
        await expect(page.locator("#answer")).to_contain_text("Refused: 400 duplicate_header")
        await page.get_by_label("One field a line").fill("no field")
        await page.get_by_role("button", name="Explain").click()
        await expect(page.locator("#answer")).to_contain_text("is no header field")


async def test_mistakes_of_a_reload_are_shown(looker: Looker) -> None:
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        await page.get_by_role("button", name="Reload configuration").click()
        dialog = page.get_by_role("dialog", name="Reload the configuration?")
        await dialog.get_by_role("button", name="Reload").click()
        await expect(dialog.get_by_role("alert")).to_have_text("the configuration came from no file")
        assert "409" in looker.complaints.pop()  # the browser's own line about the answer


async def test_light_and_dark_follow_the_system(looker: Looker) -> None:
    async with proxied() as proxy:
        colour = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).reduce((sum, part) => sum + +part, 0)"
        light = await looker.open(proxy.admin_port)
        dark = await looker.open(proxy.admin_port, scheme="dark")
        assert await light.evaluate(colour) > 3 * 220
        assert await dark.evaluate(colour) < 3 * 40
        await light.emulate_media(color_scheme="dark")
        assert await light.evaluate(colour) < 3 * 40


@pytest.mark.parametrize("size", [PHONE, WIDE, (768, 900), (320, 600)], ids=str)
async def test_nothing_is_wider_than_the_window(looker: Looker, size: tuple[int, int]) -> None:
    async with proxied() as proxy, client(proxy.port) as caller:
        await caller.ask(call())
        page = await looker.open(proxy.admin_port, size=size)
        await expect(page.get_by_role("img", name="Shares of new work")).to_be_visible()
        await expect(page.get_by_role("img", name="Requests by duration")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert size[0] < PHONE[0] or await page.evaluate(
            "[...document.querySelectorAll('.scroll')].every((one) => one.scrollWidth <= one.clientWidth)"
        )
        button = await page.get_by_role("button", name="Drain a", exact=True).bounding_box()
        assert button is not None and button["height"] >= 24  # WCAG 2.5.8
