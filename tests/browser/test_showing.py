"""What the dashboard shows, in a real browser."""

import re
import time
from dataclasses import replace

from playwright.async_api import Route, expect

from proxy.records import RequestRecord
from tests.browser.browsing import POOLS, Looker, cells, proxied, row
from tests.wire.harness import backend, call, client, config_text, running

LONG = RequestRecord(
    *("tools/call", "POST", 200, "rest", "agents", "a", "none", "balance", "served", 200),
    *(20.0, 0.7, 0, 0, "", "127.0.0.1", "", False),
)
"""A request that took 20 s."""


async def test_how_discovery_stands_is_told(looker: Looker) -> None:
    told = {
        "from": "dns agents.test:8000",
        "last_success": time.time() - 61,
        "failure": "no answer in time",
        "failures_in_a_row": 3,
        "missing": ["b"],
    }

    async def discovered(route: Route) -> None:
        answer = await route.fetch()
        values = await answer.json()
        (pool,) = values["pools"]
        pool["discovery"] = told
        for member in pool["backends"]:
            member["discovered"] = True
        await route.fulfill(response=answer, json=values)

    async def failed(route: Route) -> None:
        answer = await route.fetch()
        failures = [{"pool": "agents", "reason": "timeout", "count": 5}]
        await route.fulfill(response=answer, json={**await answer.json(), "discovery_failures": failures})

    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        await expect(row(page, "a")).not_to_contain_text("discovered")
        await page.route("**/api/pools", discovered)
        await page.route("**/api/overview", failed)
        line = page.get_by_text("2 backends found by dns agents.test:8000")
        await expect(line).to_contain_text("which answered 1 min ago")
        await expect(line).to_contain_text("5 failures since start: timeout 5 · 3 in a row now")
        await expect(line).to_contain_text("not found lately, kept for now: b")
        await expect(row(page, "a")).to_contain_text("discovered")
        await expect(row(page, "a")).not_to_contain_text("not found lately")
        await expect(row(page, "b")).to_contain_text("not found lately")
        findings = page.get_by_role("region", name="What needs a look")
        await expect(findings).to_contain_text("Pool agents: its backends cannot be looked up: no answer in time")
        await expect(findings).to_contain_text("Pool agents: 1 backend is not found lately, and may leave")
        told.update(last_success=None, failures_in_a_row=0, missing=[])
        await expect(line).to_contain_text("which has not answered yet")
        await page.unroute_all(behavior="wait")


async def test_whether_anything_is_lost_is_answered_and_what_it_means_is_said(looker: Looker) -> None:
    async with proxied() as proxy, client(proxy.port) as caller:
        await caller.ask(call())
        page = await looker.open(proxy.admin_port)
        lost = page.get_by_role("region", name="Is anything lost?")
        await expect(lost).to_contain_text("No: nothing that this proxy saw since it started")
        await expect(lost.get_by_text("these tasks are searched for")).to_have_count(2)
        await expect(lost.get_by_text("these tasks are searched for").first).to_be_hidden()
        proxy.counts.unlearned("oversized")
        await expect(lost).to_contain_text("Perhaps: look at what came in the last")
        line = lost.get_by_role("row", name="Answers that left no pin")
        await expect(line.get_by_text("these tasks are searched for")).to_be_visible()
        assert await line.get_by_role("cell").all_inner_texts() == ["1", "1"]
        others = page.get_by_role("table", name="What else happened").get_by_role(
            "row", name="Not learned from: oversized"
        )
        assert await others.get_by_role("cell").all_inner_texts() == ["1", "1"]
        await expect(page).to_have_title("(1) mcp-routing-proxy")
        await page.reload()
        await expect(lost).to_contain_text("Nothing in the last")
        await expect(page).to_have_title("mcp-routing-proxy")


async def test_times_to_the_first_byte_are_shown_as_well(looker: Looker) -> None:
    async with proxied() as proxy, client(proxy.port) as caller:
        page = await looker.open(proxy.admin_port)
        traffic = page.get_by_role("region", name="Traffic")
        await expect(traffic.get_by_text("No request has come yet.")).to_have_count(2)
        await caller.ask(call())
        drawing = page.get_by_role("img", name="Requests by duration")
        await expect(drawing).to_be_visible()
        proxy.counts.record(replace(LONG, first_byte=0.7))
        await expect(drawing).to_have_accessible_name(re.compile("up to 30 s: 1$"))
        await page.get_by_role("combobox", name="Until").select_option("the first byte")
        await expect(drawing).to_have_accessible_name(re.compile("up to 1 s: 1$"))


async def test_where_pools_are_many_they_are_listed_to_go_to(looker: Looker) -> None:
    async with backend() as a, running(config_text(a.port, **POOLS)) as proxy:
        proxy.set_draining(pool="p-2", backend="x", draining=True)
        page = await looker.open(proxy.admin_port)
        index = page.get_by_role("navigation", name="Pools")
        assert await index.get_by_role("link").all_inner_texts() == [
            "agents 1 of 1",
            *(f"p-{number} {int(number != 2)} of 1" for number in range(6)),
        ]
        last = page.get_by_role("heading", name="p-5")
        await expect(last).not_to_be_in_viewport()
        await index.get_by_role("link", name="p-5").focus()
        await page.keyboard.press("Enter")
        await expect(last).to_be_in_viewport()


async def test_nothing_moves_sideways_as_numbers_grow_and_what_is_written_stays(looker: Looker) -> None:
    places = (
        "[...document.querySelectorAll('.backends th, .backends button')].map((one) => one.getBoundingClientRect().x)"
    )
    async with proxied() as proxy:
        page = await looker.open(proxy.admin_port)
        await expect(row(page, "b")).to_contain_text("50.0")
        before = await page.evaluate(places)
        name = page.get_by_label("Task id")
        await name.fill("half a na")
        member = proxy.pools["agents"].member("b")
        assert member is not None
        member.in_flight = 1_234_567
        await expect(row(page, "b")).to_contain_text("1,234,567")
        assert await page.evaluate(places) == before
        member.in_flight = 0
        await expect(name).to_be_focused()
        await expect(name).to_have_value("half a na")


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
