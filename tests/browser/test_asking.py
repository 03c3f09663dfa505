"""How the dashboard asks its proxy, and what it shows where that does not answer."""

from playwright.async_api import expect

from tests.browser.browsing import TOKEN, Looker, proxied, row
from tests.process.harness import config_text as process_config
from tests.process.harness import proxy_process
from tests.wire.harness import backend, call, client, config_text, running


async def test_a_proxy_that_does_not_answer_is_told_of(looker: Looker) -> None:
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        await expect(row(page, "a")).to_contain_text("up")
        await page.context.set_offline(True)
        await expect(page.get_by_text("nobody answers. What is shown may be old.").first).to_be_visible()
        await expect(page.locator("#freshness")).to_contain_text("old")
        await page.context.set_offline(False)
        await expect(page.locator("#trouble")).to_be_hidden()
        looker.complaints.clear()  # the browser's own lines about requests that failed


async def test_what_was_never_heard_is_not_called_old(looker: Looker) -> None:
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port, silent=True)
        await expect(page.locator("#trouble")).to_have_text(
            "The proxy cannot be asked: nobody answers. It is asked again and again."
        )
        await expect(page.locator("#freshness")).to_have_text("No answer")
        await expect(page.get_by_text("No pool is known yet.")).to_be_visible()
        await expect(page.get_by_role("region", name="Traffic")).to_be_hidden()
        await page.unroute_all(behavior="wait")
        await expect(row(page, "a")).to_contain_text("up")
        await expect(page.locator("#trouble")).to_be_hidden()
        await expect(page.get_by_text("No pool is known yet.")).to_be_hidden()
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
