"""Starts the processes of a run and ends every one of them, whatever happens in between."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

END_SECONDS = 5.0


@contextmanager
def logging_to(log: Path, command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Runs a command while the context is open; what it prints goes to the file ``log``."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, text=True, start_new_session=True
        )
        try:
            yield process
        finally:
            end(process)


@contextmanager
def talking_to(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Runs a command while the context is open, with pipes to its input and from its output."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True
    )
    try:
        yield process
    finally:
        end(process)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def end(process: subprocess.Popen[str]) -> None:
    """Ends a process, and those it started with it.

    Each runs in a session of its own: a Ctrl-C on the terminal reaches the harness alone, which then ends them in
    order; and if one does not end when asked, its whole group is known by its id, which nobody else can have before
    the wait.
    """
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_ports(count: int) -> list[int]:
    """Different ports on loopback that were free just now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
