"""Official SDK client of a tool that asks back: `python -m tests.interop.rounds_client URL --n 20 --conc 1 --min 1`.

Each call takes three requests, and the second and third bring back a state that only the asking server can read. With
`--conc` above 1 so many clients call side by side, each with connections and a token of its own. One JSON line at the
end: calls that succeeded, calls that failed, and by which instance.
"""

import argparse
import asyncio
import collections
import json
import sys

import mcp.types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError

VERSION = "2026-07-28"


async def main() -> int:
    """Runs all calls, prints the counts and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.rounds_client")
    parser.add_argument("url")
    parser.add_argument("--n", type=int, default=20, help="calls in all")
    parser.add_argument("--conc", type=int, default=1, help="clients that call side by side")
    parser.add_argument("--min", type=float, default=0.0, help="exit 1 below this share of calls that succeed")
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()

    async def answer(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"text": "yes"})

    async def calls(number: int) -> None:
        headers = {"Authorization": f"Bearer client-{number}"}
        async with create_mcp_http_client(headers=headers) as http:
            transport = streamable_http_client(options.url, http_client=http)
            async with Client(transport, mode=VERSION, elicitation_callback=answer) as client:
                for _ in range(options.n // options.conc):
                    try:
                        result = await client.call_tool("introduce", {})
                    except MCPError as error:
                        counts["failed"] += 1
                        counts[f"error:{error.error.code}"] += 1
                        continue
                    text = getattr(result.content[0], "text", "")
                    counts["failed" if result.is_error else "ok"] += 1
                    counts["by:" + text.rsplit(" ", 1)[-1]] += 1

    await asyncio.gather(*(calls(number) for number in range(options.conc)))
    rate = counts["ok"] / options.n
    sys.stdout.write(json.dumps({**counts, "success_rate": round(rate, 3)}) + "\n")
    return int(rate < options.min)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
