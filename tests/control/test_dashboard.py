"""The dashboard's files go to browsers, small, guarded by headers, and hold nothing that is worth a token."""

import re
from pathlib import Path

import pytest
from pytest_aiohttp import AiohttpClient

from proxy.control import dashboard
from proxy.control.dashboard import PREFIX, dashboard_files
from tests.control.test_admin import TOKEN, Client, Scene

FOLDER = Path(dashboard.__file__).parent
FILES = sorted(set(dashboard_files()) - {"index.html"})
CHROMIUM = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
MOST = 100_000  # bytes


@pytest.fixture
async def client(aiohttp_client: AiohttpClient) -> Client:
    return await aiohttp_client(Scene().app())


@pytest.fixture
async def guarded(aiohttp_client: AiohttpClient) -> Client:
    return await aiohttp_client(Scene().app(token=TOKEN))


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (CHROMIUM, "text/html"),
        ("text/html", "text/html"),
        ("Text/HTML;q=0.5", "text/html"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("", "application/json"),
        (None, "application/json"),
    ],
)
async def test_a_browser_gets_the_page_and_others_the_index(client: Client, accept: str | None, kind: str) -> None:
    answer = await client.get("/", headers={} if accept is None else {"Accept": accept}, skip_auto_headers=["Accept"])
    assert (answer.status, answer.content_type) == (200, kind)
    assert answer.headers["Vary"] == "Accept"


@pytest.mark.parametrize("path", ["/", *(PREFIX + name for name in FILES)])
async def test_a_file_is_guarded_by_its_headers(client: Client, path: str) -> None:
    answer = await client.get(path, headers={"Accept": "text/html"})
    assert answer.status == 200
    policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[f"{kind}-src"] for kind in ("script", "style", "img", "connect")} == {"'self'"}
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"


async def test_all_of_it_is_small(client: Client) -> None:
    paths = ["/", *(PREFIX + name for name in FILES)]
    bodies = [await (await client.get(path, headers={"Accept": "text/html"})).read() for path in paths]
    assert 0 < sum(map(len, bodies)) < MOST


async def test_the_files_are_open_and_what_they_ask_for_is_not(guarded: Client) -> None:
    """A browser that is pointed at a page cannot show a token."""
    for path in ("/", *(PREFIX + name for name in FILES)):
        assert (await guarded.get(path, headers={"Accept": "text/html"})).status == 200
    for path in ("/api/pools", "/api/overview", "/api/pools/agents/spread"):
        assert (await guarded.get(path, headers={"Accept": "text/html"})).status == 401
        assert (await guarded.get(path, headers={"Authorization": f"Bearer {TOKEN}"})).status == 200


@pytest.mark.parametrize("name", ["index.html", *FILES])
def test_nothing_comes_from_outside(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert set(re.findall(r"\w+://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_the_page_has_no_inline_script_or_style_and_names_files_that_exist() -> None:
    text = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"\s(?:on\w+|style)=|<style|<script(?![^>]*\ssrc=)", text) == []
    named = re.findall(r"(?:src|href)=\"(dashboard/[^\"]+)\"", text)
    imported = [
        f"dashboard/{found}"
        for path in FOLDER.glob("*.js")
        for found in re.findall(r"from \"\./([^\"]+)\"", path.read_text(encoding="utf-8"))
    ]
    assert {f"dashboard/{name}" for name in FILES} == set(named) | set(imported)


@pytest.mark.parametrize("path", ["", "index.html", "__init__.py", "nothing.js", "..%2fadmin.py", "%2e%2e/admin.py"])
async def test_nothing_else_is_served(client: Client, path: str) -> None:
    assert (await client.get(PREFIX + path)).status == 404


async def test_another_host_or_origin_gets_no_file(client: Client) -> None:
    assert (await client.get(f"{PREFIX}app.js", headers={"Host": "evil.example"})).status == 421
    assert (await client.get("/", headers={"Accept": "text/html", "Origin": "http://evil.example"})).status == 403
