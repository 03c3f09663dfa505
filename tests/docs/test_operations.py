"""What docs/operations.md and docs/wire.md list is what there is."""

import json
import re
from pathlib import Path

from proxy.access_log import AccessLog
from proxy.records import RequestRecord
from proxy.routing import errors

DOCS = Path(__file__).parents[2] / "docs"
_CODE = re.compile(r"`(\w+)`")


def first_cells(file: str, heading: str) -> list[str]:
    """What stands in code in the first column of a section's table."""
    section = (DOCS / file).read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [row.split(" | ")[0] for row in section.split("\n") if row.startswith("| `")]
    return [name for row in rows for name in _CODE.findall(row)]


class Kept:
    """A stream that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes, /) -> int:
        self.data += data
        return len(data)


def test_every_key_of_the_access_log_is_told() -> None:
    stream = Kept()
    log = AccessLog(stream, "json", lambda: 0.0)
    log.record(
        RequestRecord(
            *("tools/call", "POST", 200, "rest", "agents", "a", "task", "pin", "served", 200, 0.2, 0.1, 1, 2),
            *("client_gone", "127.0.0.1", "0123456789", True),
        )
    )
    log.flush()

    assert sorted(first_cells("operations.md", "Access log")) == sorted(json.loads(stream.data))


def test_every_error_of_the_proxy_is_told() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ProxyError)]
    reasons = {reason for kind in kinds if (reason := getattr(kind, "reason", ""))}

    assert set(first_cells("wire.md", "Errors of the proxy's own")) == reasons
