"""`serve`: a proxy from its start to its end, in one process or as a supervisor of several, and its signals.

SIGTERM and SIGINT drain it, SIGHUP puts the changed file in force, SIGUSR2 starts a new generation in its place. With
`watch` a change of the files is noticed without a signal.
"""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from proxy.app import Proxy
from proxy.background import Background
from proxy.config import Config, ConfigError, parse, read_file
from proxy.control.reload import Reload
from proxy.process import PASSED_ON, hold_signals
from proxy.routing.pools import Pool, Standing
from proxy.watching import Watch
from proxy.workers.sockets import Endpoints, Given, endpoints_of, take_given
from proxy.workers.succession import Predecessor, notify, start_successor
from proxy.workers.supervisor import Supervisor

_LOOK = 1.0  # seconds between looks at the files, where they are watched

log = logging.getLogger("proxy")


class Service(Protocol):
    """What runs: a proxy in this process, or a supervisor of several."""

    @property
    def pools(self) -> Mapping[str, Pool]: ...

    @property
    def port(self) -> int: ...

    @property
    def admin_port(self) -> int: ...

    @property
    def endpoints(self) -> Endpoints: ...

    async def close_admin(self) -> None:
        """Leaves the admin address to the next generation."""
        ...

    async def drain(self) -> None:
        """Lets what is under way finish, then ends everything."""
        ...


class Source:
    """Where the configuration comes from, each time it is read. `workers`: of the command line, None for the file's."""

    def __init__(self, path: Path, environ: Mapping[str, str], workers: int | None = None) -> None:
        self.name = str(path)
        self.path = path
        self._environ = environ
        self._workers = workers

    def read(self) -> tuple[Config, str]:
        """The configuration, and its YAML. Raises ConfigError."""
        text = read_file(self.path)
        config = parse(text, self.name, self._environ)
        return (config if self._workers is None else replace(config, workers=self._workers)), text


class Reloading:
    """Puts the configuration of a source in force in a service, as it is each time."""

    def __init__(self, source: Source) -> None:
        self.service: Proxy | Supervisor | None = None
        """Where, once it runs."""
        self.files: tuple[Path, ...] = (source.path,)
        """The files that what is in force came from."""
        self._source = source
        self._watch = Watch(self.files)

    def read(self) -> tuple[Config, str]:
        """The configuration for the start, and its YAML. Raises ConfigError."""
        config, text = self._source.read()
        self._note(config)
        self._watch = Watch(self.files)
        return config, text

    def now(self) -> str | None:
        """Puts it in force; None, or the mistakes for which the one before stays."""
        service = self.service
        if service is None:
            return "the proxy does not serve yet"
        self._watch = Watch(self.files)  # first: what changes while it is read is a change
        try:
            config, text = self._source.read()
            if isinstance(service, Supervisor):
                service.apply(config, text)
            else:
                service.apply(config)
        except (ConfigError, ValueError) as error:
            service.counts.reloaded(ok=False)
            log.error("the new configuration is refused, the one before stays in force:\n%s", error)
            return str(error)
        service.counts.reloaded(ok=True)
        before = self.files
        self._note(config)
        if self.files != before:
            self._watch = Watch(self.files)
        log.info("the new configuration is in force")
        return None

    def if_changed(self) -> None:
        """The same, if one of the files has changed since the look before the last."""
        if self._watch.changed(self.files):
            log.info("the configuration has changed")
            self.now()

    def _note(self, config: Config) -> None:
        self.files = (self._source.path, *config.files)
        for warning in config.warnings:
            log.warning("%s", warning)


async def serve(source: Source, *, watch: bool = False) -> Process | None:
    """Serves until SIGTERM or SIGINT, or until a new generation serves in its place, whose process it returns then.

    `watch`: a change of the configuration's files is noticed. Raises ConfigError, and OSError when it cannot listen.
    """
    stop, renew = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGHUP, signal.SIGUSR2):  # before they mean something they must not end the process
        loop.add_signal_handler(number, log.warning, "%s comes too early", number.name)
    reloading = Reloading(source)
    with _cut_short(stop):
        given = take_given(os.environ, os.getpid())
        predecessor = None if given.channel is None else Predecessor(given.channel)
        config, text = reloading.read()
        standings = {} if predecessor is None else await predecessor.standings()
        service = await _started(config, text, source, given, standings, reloading.now)
        reloading.service = service
    if stop.is_set():
        log.info("told to end before it served")
        return None
    loop.add_signal_handler(signal.SIGHUP, reloading.now)
    loop.add_signal_handler(signal.SIGUSR2, renew.set)
    log.info(
        "serving on %s port %d, admin on %s port %d",
        config.listen.host,
        service.port,
        config.admin.host,
        service.admin_port,
    )
    if predecessor is not None:
        predecessor.relieve(service.set_draining)
    notify(f"MAINPID={os.getpid()}\nREADY=1")
    successor = await _until_over(service, stop, renew, reloading.if_changed if watch else None)
    log.info("draining, at most %g s", config.drain)
    if successor is None:
        notify("STOPPING=1")
    else:
        # Whoever signals the process that was started first means what serves now.
        for number in PASSED_ON:
            loop.add_signal_handler(number, _pass_on, successor, number)
        await service.close_admin()
    await service.drain()
    if successor is not None and os.getpid() == 1:
        hold_signals()
    return successor


@contextmanager
def _cut_short(stop: asyncio.Event) -> Iterator[None]:
    """At the first SIGTERM or SIGINT, ends what is done within and sets `stop`; afterwards these only set it."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()

    def cut() -> None:
        if not stop.is_set() and task is not None:
            stop.set()
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, cut)
    try:
        yield
    except asyncio.CancelledError:
        if not stop.is_set() or task is None:
            raise
        task.uncancel()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)


async def _started(
    config: Config, text: str, source: Source, given: Given, standings: Mapping[str, Standing], reload: Reload
) -> Proxy | Supervisor:
    if config.workers == 1:
        proxy = Proxy(config, standings=standings)
        await proxy.start(given, reload)
        return proxy
    endpoints = await endpoints_of(config, config.workers, given)
    supervisor = Supervisor(config, text, source.name, endpoints, standings=standings, reload=reload)
    try:
        await supervisor.start()
    except BaseException:
        await supervisor.drain()
        raise
    return supervisor


async def _until_over(
    service: Service, stop: asyncio.Event, renew: asyncio.Event, look: Callable[[], None] | None
) -> Process | None:
    """Waits for the end, looking for changes meanwhile; the process of the next generation, if there is one."""
    background = Background()
    if look is not None:
        background.loop("look for changes of the configuration", _LOOK, look)
    stopped = background.spawn(stop.wait(), "await the end")
    try:
        while not stop.is_set():
            asked = background.spawn(renew.wait(), "await a new generation")
            await asyncio.wait((stopped, asked), return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                break
            renew.clear()  # who asks from now on, while one starts, gets another if it fails
            log.info("starting a new generation")
            starting = background.spawn(start_successor(service.endpoints, service.pools), "start a new generation")
            await asyncio.wait((stopped, starting), return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and (successor := starting.result()) is not None:
                return successor
    finally:
        await background.close()
    return None


def _pass_on(successor: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has ended
        successor.send_signal(number)
