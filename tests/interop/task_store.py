"""Tasks in a file: what a server needs to go on with them after it was killed, and what it was told about them.

A row is written before the answer that tells of it leaves, so a killed server has forgotten nothing that anybody knows.
The file is SQLite's, and one process at a time writes it; others may read.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

_TABLES = """
CREATE TABLE IF NOT EXISTS tasks (id TEXT PRIMARY KEY, label TEXT, seconds REAL, created REAL, cancelled REAL);
CREATE TABLE IF NOT EXISTS changes (task TEXT, method TEXT);
"""


class StoredTask(NamedTuple):
    """A task as it is kept; times in seconds since the epoch, which goes on while no server runs."""

    id: str
    label: str
    seconds: float
    created: float
    cancelled: float | None


class TaskStore:
    """The tasks of one server."""

    def __init__(self, file: Path) -> None:
        self._file = sqlite3.connect(file, isolation_level=None)  # each statement is a transaction
        # What was handed to the system outlives the process; only the machine's own end would need more.
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.executescript(_TABLES)

    def tasks(self) -> list[StoredTask]:
        """All that were ever made."""
        return [StoredTask(*row) for row in self._file.execute("SELECT * FROM tasks")]

    def keep(self, task: StoredTask) -> None:
        """A new task, or what has become of one."""
        self._file.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?)", task)

    def told(self, task_id: str, method: str) -> None:
        """A request to change this task has come."""
        self._file.execute("INSERT INTO changes VALUES (?, ?)", (task_id, method))


def changes_in(file: Path, task_id: str) -> list[str]:
    """The methods of all requests to change this task that ever reached the server with this store, in order."""
    with closing(sqlite3.connect(file)) as store:
        rows = store.execute("SELECT method FROM changes WHERE task = ? ORDER BY rowid", (task_id,))
        return [method for (method,) in rows]
