"""Official SDK client of earlier versions: `python -m tests.interop.sessions_client URL --n 5 --calls 4`.

Opens sessions one after the other and calls a tool in each; every answer of a session has to come from one instance.
One JSON line at the end: sessions that held together, calls that failed, and sessions by instance.
"""

import argparse
import asyncio
import collections
import json
import sys

from mcp import Client
from mcp.shared.exceptions import MCPError


async def main() -> int:
    """Runs all sessions and prints the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.sessions_client")
    parser.add_argument("url")
    parser.add_argument("--n", type=int, default=5, help="sessions")
    parser.add_argument("--calls", type=int, default=4, help="calls of each")
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    for _ in range(options.n):
        served: set[str] = set()
        async with Client(options.url, mode="legacy") as client:
            for _ in range(options.calls):
                try:
                    result = await client.call_tool("whoami", {})
                except MCPError as error:
                    counts[f"error:{error.error.code}"] += 1
                    continue
                served.add(getattr(result.content[0], "text", ""))
                counts["calls"] += 1
        counts["held" if len(served) == 1 else "torn"] += 1
        counts.update(f"by:{name}" for name in served)
    sys.stdout.write(json.dumps(counts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
