"""Which of a pool's members take new work, and what share of it.

Rules:
* Fit are the configured members that are not drained, are up, and are not ejected. If all who could be fit are ejected,
  they are fit all the same: ejection alone never empties a pool. Probes may.
* Nobody is ejected who takes no new work anyway.
* Where there are no probes everybody is up, where there is no rule for outliers nobody is ejected.
* Owners are not asked for here: they serve what they own, fit or not.
* Time passes when `tend` is called, some times a second: ejections end then, and shares grow.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from proxy.routing.errors import ProxyError
from proxy.routing.health import Health
from proxy.routing.members import Member
from proxy.routing.outliers import FAILURES, OutlierRule


class Turn(NamedTuple):
    """What became of a member."""

    member: Member
    event: Literal["ejected", "readmitted"]
    failures: int
    """In a row, before an ejection."""


def fit_among(members: Iterable[Member]) -> tuple[Member, ...]:
    """Those of these configured members that are fit, by the first rule above."""
    able = tuple(member for member in members if not member.withdrawn and member.up)
    return tuple(member for member in able if not member.ejected) or able


class Fitness:
    """The members of one pool that take new work. All times: monotonic, in seconds."""

    def __init__(self) -> None:
        self.health: Health | None = None
        self.ejections = 0
        """How many there were."""
        self.fit: tuple[Member, ...] = ()
        """In configured order."""
        self.weight = 0
        """That of the fit members, as configured, together."""
        self._rule: OutlierRule | None = None
        self._members: Sequence[Member] = ()
        self._turns: list[Turn] = []  # since `tend` told of them

    def configure(self, health: Health | None, outlier: OutlierRule | None) -> None:
        """Sets how members are probed (None: not at all) and when they are ejected (None: never)."""
        self.health, self._rule = health, outlier
        self.recount(self._members)

    def recount(self, members: Sequence[Member]) -> None:
        """These are the configured members, or something about them has changed."""
        self._members = members
        for member in members:
            if member.warm_since is None:
                member.weight = member.backend.weight
            if self.health is None:
                member.set_up(True)
            if self._rule is None and member.conduct.ejected:
                member.conduct.readmit(0.0)
        fit = fit_among(members)
        for member in members:
            member.fit = False
        for member in fit:
            member.fit = True
        self.fit = fit
        self.weight = sum(member.backend.weight for member in fit)

    # ---- probes
    def probed(self, member: Member, ok: bool, said: str, now: float) -> bool:
        """Takes in a probe's result, and what it was in words. True if the member came up or went down."""
        member.probe = said
        if self.health is None or not member.heard(ok, rise=self.health.rise, fall=self.health.fall):
            return False
        self._turned(member, now)
        return True

    def set_up(self, member: Member, up: bool, now: float) -> None:
        """Another process has found that a member is up, or down."""
        if self.health is not None and member.up is not up:
            member.set_up(up)
            self._turned(member, now)

    def _turned(self, member: Member, now: float) -> None:
        if member.up:
            member.warm_up(now)
        self.recount(self._members)

    # ---- the data path
    def failed(self, member: Member, error: ProxyError, now: float) -> None:
        """An attempt at this member ended without an answer."""
        if error.backend_fault:
            self._add_failure(member, now)

    def answered(self, member: Member, status: int, now: float) -> None:
        """An attempt ended with an answer. On the fast path it is not called where it would change nothing."""
        if status in FAILURES:
            self._add_failure(member, now)
        else:
            member.conduct.failures = 0

    def _add_failure(self, member: Member, now: float) -> None:
        conduct, rule = member.conduct, self._rule
        conduct.failures += 1
        if rule is None or conduct.ejected or conduct.failures < rule.consecutive or not member.fit:
            return
        others = sum(other.ejected for other in self._members)
        if others >= rule.most(len(self._members)) or len(self.fit) < 2:
            return
        conduct.eject(rule, now)
        self.ejections += 1
        self._turns.append(Turn(member, "ejected", conduct.failures))
        self.recount(self._members)

    # ---- time
    def tend(self, now: float) -> list[Turn]:
        """Ends the ejections that are over and lets shares grow. Whom that, or an ejection, has befallen since."""
        for member in self._members:
            if member.warm_since is not None:
                member.grow(now)
            if member.ejected and now >= member.conduct.until:
                member.conduct.readmit(now)
                member.warm_up(now)
                self._turns.append(Turn(member, "readmitted", 0))
                self.recount(self._members)
        turns, self._turns = self._turns, []
        return turns


def news(turns: Sequence[Turn]) -> list[str]:
    """The same in words, for a log."""
    return [
        f"{turn.member.backend.id} takes no new work for a while: {turn.failures} failures in a row"
        if turn.event == "ejected"
        else f"{turn.member.backend.id} takes new work again, slowly at first"
        for turn in turns
    ]
