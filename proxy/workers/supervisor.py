"""Several workers as one proxy: told of changes, and counted as one.

What must be alike everywhere goes through here: the configuration, drains by command, who is up and who was discovered
(the supervisor alone probes and looks), members that departed and when they are forgotten, news of rounds. A worker
that starts gets all of it but the rounds. The workers' lives are in proxy/workers/crew.py, what they tell and what it
amounts to in proxy/workers/picture.py.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from proxy.background import Background
from proxy.config import Config
from proxy.control.admin import AdminServer, admin_app, serve_admin
from proxy.control.prober import Prober
from proxy.control.reload import Reload, nothing_to_read
from proxy.counts import Counts
from proxy.discovery.following import Discovery
from proxy.explaining import Question
from proxy.metrics import Metrics
from proxy.parts import fixed
from proxy.pins.held import Held, tasks_held
from proxy.routing.backends import Backend
from proxy.routing.pools import Pool, Standing
from proxy.routing.telling import Told
from proxy.snapshot import Snapshot
from proxy.together import Together
from proxy.version import proxy_version
from proxy.workers.channel import Message
from proxy.workers.crew import Crew
from proxy.workers.hands import Hand
from proxy.workers.picture import Picture
from proxy.workers.sockets import Endpoints
from proxy.workers.state import standings_of

_LOOK = 1.0  # seconds between looks at members that departed

log = logging.getLogger("proxy")


class Supervisor:
    """The workers of one configuration, whose YAML is `text` and came from `source`.

    `reload`: for the admin interface.
    """

    def __init__(
        self,
        config: Config,
        text: str,
        source: str,
        endpoints: Endpoints,
        *,
        standings: Mapping[str, Standing] | None = None,
        reload: Reload = nothing_to_read,
    ) -> None:
        self.endpoints = endpoints
        """What the workers accept from, and the admin interface listens on."""
        self.draining = False
        self._config = config
        self._text = text
        self._source = source
        self._reload = reload
        self._changes = 0
        self._background = Background()
        self._admin: AdminServer | None = None
        self._picture = Picture(config, standings, self._background)
        self._crew = Crew(
            endpoints.clients,
            config.workers,
            begin=self._begin,
            received=self._received,
            buried=self._picture.bury,
            background=self._background,
        )
        self._prober = Prober(
            self._background,
            pools=lambda: self.pools,
            changed=self._tell_health,
            clock=time.monotonic,
            version=proxy_version(),
        )
        self._refresh = Together(self._report)
        self._discovery = Discovery(
            self._background, pools=lambda: self.pools, changed=self._set_found, clock=time.monotonic
        )

    @property
    def pools(self) -> Mapping[str, Pool]:
        """The picture of all workers' pools."""
        return self._picture.pools

    @property
    def counts(self) -> Counts:
        """What is counted here: changes of the configuration."""
        return self._picture.counts

    @property
    def port(self) -> int:
        """The port that clients reach."""
        return int(self.endpoints.clients[0].getsockname()[1])

    @property
    def admin_port(self) -> int:
        """The port of the admin interface."""
        return int(self.endpoints.admin.getsockname()[1])

    async def start(self) -> None:
        """Starts the workers, and returns when all accept clients. Raises OSError if the first ones cannot live."""
        await self._crew.start()
        self._background.loop("forget departed backends", _LOOK, self._forget_departed)
        await self._serve_admin()
        self._prober.watch(self._prober.targets(self._picture.in_force))
        self._discovery.follow(self._config.pools.values())

    async def _serve_admin(self) -> None:
        """Opens the admin interface. Not before we serve: until then the generation before answers there."""
        self._picture.pins.start()
        admin = self._config.admin
        app = admin_app(
            metrics=Metrics(version=proxy_version(), snapshot=self._snapshot, held=self._held),
            pools=lambda: self.pools,
            pins=self._picture.pins,
            refresh=self._refresh,
            set_draining=self.set_draining,
            explain=self._explain,
            reload=self._reload,
            clock=time.monotonic,
            readiness=self._readiness,
            discovery=self._discovery.told,
            version=proxy_version(),
            token=admin.token,
            allowed_hosts=("localhost", "127.0.0.1", "[::1]"),
        )
        self._admin = await serve_admin(app, self.endpoints.admin)

    # ---- what workers say, and are told
    def _begin(self, hand: Hand) -> None:
        hand.born = self._changes
        hand.send(
            "start",
            config=self._text,
            source=self._source,
            sockets=[sock.fileno() for sock in self.endpoints.clients],
            accept=[],
            standings=standings_of(self.pools),
        )

    def _received(self, hand: Hand, message: Message) -> None:
        kind = message["kind"]
        if kind == "report" and "snapshot" in message:
            hand.note(message)
            self._picture.note_sessions(message["sessions"])
            self._picture.note_tasks(message["tasks"])
        elif kind == "tasks":
            self._picture.note_tasks(message["tasks"])
        elif kind == "whose":
            pool, backend = self._picture.owner(message["key"])
            hand.send("owner", number=message["number"], pool=pool, backend=backend)
        elif kind == "round":
            self._crew.tell("round", besides=hand, news=message["news"])

    # ---- changes
    def apply(self, config: Config, text: str) -> None:
        """Makes another configuration, whose YAML is `text`, the one in force in all workers. Raises ValueError."""
        changed = fixed(self._config, config)
        if changed:
            raise ValueError(f"only a restart can change {', '.join(changed)}")
        self._prober.targets(config.pools.values())  # its files are read before anything is changed
        self._picture.apply(config)
        self._config, self._text = config, text
        self._changes += 1
        self._crew.tell("reload", config=text)
        self._prober.watch(self._prober.targets(self._picture.in_force))
        self._discovery.follow(config.pools.values())

    async def _set_found(self, pool: str, found: Sequence[Backend]) -> None:
        """Makes these the discovered members of a pool in all workers."""
        if await self._picture.set_found(pool, found):
            self._changes += 1
            self._crew.tell("found", pool=pool, backends=[asdict(backend) for backend in found])
            self._prober.watch(self._prober.targets(self._picture.in_force))

    def set_draining(self, *, pool: str, backend: str, draining: bool) -> None:
        """Takes a backend out of new work in all workers, or back in. Raises LookupError for one that is not there."""
        known, member = self._picture.member(pool, backend)
        if member.draining is not draining:
            known.set_draining(member, draining)
            log.info("%s/%s %s", pool, backend, "takes no new work" if draining else "takes new work again")
        self._crew.tell("drain", pool=pool, backend=backend, draining=draining)

    def _tell_health(self, pool: str, backend: str, up: bool) -> None:
        self._crew.tell("health", pool=pool, backend=backend, up=up)

    async def _forget_departed(self) -> None:
        if not self._picture.has_departed:
            return
        held = await tasks_held(self._picture.pins)
        for pool, backend in self._picture.forget_done(self._crew.ready, held, changes=self._changes):
            self._crew.tell("forget", pool=pool, backend=backend)

    # ---- for the admin interface
    async def _report(self) -> None:
        """Lets all workers report, and brings the picture of their pools up to date."""
        await asyncio.gather(*(hand.ask("report") for hand in self._crew.ready if not hand.stalled))
        self._picture.refresh(self._crew.ready)

    def _snapshot(self) -> Snapshot:
        snapshot = self._picture.snapshot(self._crew.ready, restarts=self._crew.restarts)
        self._discovery.add_to(snapshot)
        return snapshot

    async def _held(self) -> Held | None:
        await self._refresh()
        return await tasks_held(self._picture.pins)

    async def _explain(self, question: Question) -> Told:
        """As the worker tells it that has a pin, else as any does."""
        asked = [question.verb, question.target, [list(field) for field in question.fields], question.client]
        answers = [
            Told(answer["values"], answer["text"])
            for answer in await asyncio.gather(*(hand.ask("explain", question=asked) for hand in self._crew.accepting))
            if answer is not None
        ]
        if not answers:
            raise LookupError("no worker answers")
        return next((told for told in answers if _is_pinned(told)), answers[0])

    def _readiness(self) -> str | None:
        if self.draining:
            return "draining"
        return self._discovery.awaited if self._crew.accepting else "no worker accepts clients"

    # ---- the end
    async def close_admin(self) -> None:
        """Leaves the admin address to the next generation."""
        if self._admin is not None:
            await self._admin.close()

    async def drain(self) -> None:
        """Lets the workers finish what is under way within the configured time, then ends them."""
        self.draining = True
        self._discovery.close()
        await self._prober.close()
        for sock in self.endpoints.clients:
            sock.close()
        await self._crew.end(self._config.drain)
        await self.close_admin()
        await self._picture.pins.close()
        await self._background.close()


def _is_pinned(told: Told) -> bool:
    return any(place["source"] == "pin" for place in told.values["places"])
