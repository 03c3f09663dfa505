"""The dashboard in a real browser: what it shows, and what can be done with it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Locator, Page, Route, expect

from proxy.app import Proxy
from proxy.routing.ownership import pin_key
from tests.browser.browsing import PHONE, WIDE, Looker
from tests.process.harness import config_text as process_config
from tests.process.harness import proxy_process
from tests.wire.harness import backend, call, client, config_text, running, until

TOKEN = "an-admin-token"
HOSTILE = "<b>&amp;%41?#"


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


def is_draining(proxy: Proxy, backend_id: str) -> bool:
    member = proxy.pools["agents"].member(backend_id)
    assert member is not None
    return member.draining


async def test_pools_and_backends_are_shown(looker: Looker) -> None:
    async with proxied() as proxy, client(proxy.port) as caller:
        await caller.ask(call())
        page = await looker.open(proxy.admin_port)
        await expect(row(page, "b")).to_contain_text("50.0")
        shown = await cells(page, "a")
        assert shown["State"] == "up"
        assert shown["Backend"].startswith("a\n127.0.0.1:")
        assert (shown["In flight"], shown["Tasks held"], shown["Sessions"], shown["5xx"]) == ("0", "2", "0", "0")
        assert (await cells(page, "b"))["Tasks held"] == "0"
        drawing = page.get_by_role("img", name="Shares of new work")
        assert await drawing.get_attribute("aria-label") == "Shares of new work: a 50.0\u00a0%, b 50.0\u00a0%"
        findings = page.get_by_role("region", name="What needs a look")
        await expect(findings).to_contain_text("Every backend takes new work")
        await expect(findings).to_contain_text("Nothing was lost")
        await expect(page.get_by_role("region", name="Traffic")).to_contain_text("tools/call")


async def test_the_ring_is_drawn_with_its_places(looker: Looker) -> None:
    async with proxied(pool="    balance: ring\n    ring_key: name") as proxy:
        page = await looker.open(proxy.admin_port)
        drawing = page.get_by_role("img", name="Shares of new work")
        await expect(drawing).to_contain_text("ring")
        assert await drawing.locator("path").count() > 20
        await expect(page.get_by_text("spread by the ring, key: name")).to_be_visible()
        proxy.set_draining(pool="agents", backend="a", draining=True)
        await expect(page.get_by_role("img", name="a 0\u00a0%, b 100.0\u00a0%")).to_be_visible()
        assert await drawing.locator("path.passed").count() > 10


async def test_a_pool_that_is_discovered_says_from_where_and_whether_that_fails(looker: Looker) -> None:
    told = {"from": "dns agents.test:8000", "last_success": time.time() - 61, "failure": "no answer in time"}

    async def discovered(route: Route) -> None:
        answer = await route.fetch()
        values = await answer.json()
        values["pools"][0]["discovery"] = told
        await route.fulfill(response=answer, json=values)

    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        await page.route("**/api/pools", discovered)
        await expect(page.get_by_text("found by dns agents.test:8000, which answered 1 min ago")).to_be_visible()
        findings = page.get_by_role("region", name="What needs a look")
        await expect(findings).to_contain_text("Pool agents: its backends cannot be looked up: no answer in time")
        await page.unroute_all(behavior="wait")


async def test_changes_are_shown_as_they_come(looker: Looker) -> None:
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        await expect(row(page, "b")).to_contain_text("up")
        proxy.set_draining(pool="agents", backend="a", draining=True)
        proxy.set_draining(pool="agents", backend="b", draining=True)
        await expect(row(page, "a")).to_contain_text("draining")
        await expect(row(page, "b")).to_contain_text("can be stopped")
        findings = page.get_by_role("region", name="What needs a look")
        await expect(findings).to_contain_text("agents/a is draining and still holds 2 tasks")
        await expect(findings).to_contain_text("Pool agents: no backend takes new work")
        await expect(page.locator("#announcer")).to_contain_text("no backend takes new work")


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


async def test_the_token_is_asked_for_and_kept_for_the_tab(looker: Looker) -> None:
    admin = f"admin: {{address: '127.0.0.1:0', token: {TOKEN}}}"
    async with backend() as a, running(config_text(a.port).replace("admin: 127.0.0.1:0", admin)) as proxy:
        page = await looker.open(proxy.admin_port)
        dialog = page.get_by_role("dialog", name="The admin token")
        await expect(dialog.get_by_label("Token")).to_be_focused()
        await page.keyboard.press("Escape")
        await page.keyboard.type("wrong")
        await page.keyboard.press("Enter")
        await expect(dialog.get_by_role("alert")).to_have_text("The proxy does not know this token.")
        await expect(page.get_by_role("table", name="Backends of pool agents")).to_be_hidden()
        await page.keyboard.type(TOKEN)
        await page.keyboard.press("Enter")
        await expect(row(page, "a")).to_contain_text("up")
        await expect(dialog).to_be_hidden()
        await page.reload()
        await expect(row(page, "a")).to_contain_text("up")
        assert TOKEN not in page.url + await page.content()
        assert await page.evaluate("localStorage.length + document.cookie.length") == 0
        await page.get_by_role("button", name="Forget token").click()
        await expect(dialog).to_be_visible()
        assert {complaint.rpartition("status of ")[2] for complaint in looker.complaints} == {"401 (Unauthorized)"}
        looker.complaints.clear()


async def test_a_proxy_that_does_not_answer_is_told_of(looker: Looker) -> None:
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        await expect(row(page, "a")).to_contain_text("up")
        await page.context.set_offline(True)
        await expect(page.get_by_text("nobody answers. What is shown may be old.").first).to_be_visible()
        await page.context.set_offline(False)
        await expect(page.locator("#trouble")).to_be_hidden()
        looker.complaints.clear()  # the browser's own lines about requests that failed


async def test_a_paused_page_asks_nothing(looker: Looker) -> None:
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        await expect(row(page, "a")).to_contain_text("up")
        pause = page.get_by_role("button", name="Pause")
        await pause.click()
        await expect(pause).to_have_attribute("aria-pressed", "true")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await expect(page.get_by_text("Paused, 3 s old")).to_be_visible()  # longer than between two looks
        assert asked == []
        proxy.set_draining(pool="agents", backend="a", draining=True)
        await pause.click()
        await expect(row(page, "a")).to_contain_text("draining")


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


async def test_two_workers_are_shown_as_one(looker: Looker) -> None:
    async with backend() as a, proxy_process(process_config(a.port, workers=2)) as proxy:
        async with client(proxy.port) as one, client(proxy.port) as other:
            for caller in (one, other):
                await caller.ask(call())
            page = await looker.open(proxy.admin_port)
            await expect(page.get_by_text("2 processes")).to_be_visible()
            await expect(page.get_by_role("row", name="tools/call").get_by_role("cell").nth(1)).to_have_text("2")
            await page.get_by_role("button", name="Drain a").click()
            await page.get_by_role("dialog").get_by_role("button", name="Drain a").click()
            await expect(row(page, "a")).to_contain_text("empty")
