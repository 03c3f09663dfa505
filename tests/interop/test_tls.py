"""The official SDK's client and servers with TLS on both sides of the proxy."""

import json
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.interop.fleet import run_client, task_servers
from tests.process.harness import proxy_process

TASKS = 12


async def test_every_task_is_completed_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    pair, ours = authority.sign("proxy", "127.0.0.1"), authority.sign("ours", "the-proxy")
    shown = ("--certificate", str(pair.certificate), "--key", str(pair.key))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))  # where the client looks for whom to trust
    async with task_servers(3, *shown) as ports:
        backends = [{"id": "abc"[index], "url": f"https://127.0.0.1:{port}/mcp"} for index, port in enumerate(ports)]
        tls = {"ca": str(authority.file), "certificate": str(ours.certificate), "key": str(ours.key)}
        text = json.dumps(
            {
                "listen": {
                    "address": "127.0.0.1:0",
                    "tls": {"certificate": str(pair.certificate), "key": str(pair.key)},
                },
                "admin": "127.0.0.1:0",
                "pools": {"agents": {"backends": backends, "tls": tls}},
                "routes": [{"name": "rest", "pool": "agents"}],
                "log": {"access": False},
                "drain": "0s",
            }
        )
        async with proxy_process(text) as proxy:
            counts = await run_client(
                f"https://127.0.0.1:{proxy.port}/mcp",
                "--n",
                str(TASKS),
                "--conc",
                "4",
                "--seconds",
                "0.1",
                "--poll",
                "0.05",
            )
            assert counts["completed"] == TASKS, counts
            assert await proxy.count("tls_handshake_failures_total") == 0
