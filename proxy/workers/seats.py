"""Which worker accepts from which socket, and how soon a dead worker is replaced.

Rules:
* Workers sit on seats 0, 1, 2 …; a replacement takes the seat of the one it replaces. Socket n belongs to seat n modulo
  their number, so that more sockets than workers, as an earlier generation may leave, are all served; where there are
  fewer, as a service manager may hand over a single one, the seats that are left share them.
* The sockets of a seat whose worker does not accept are its next neighbour's meanwhile: connections wait in the queues
  of their sockets, and no other socket gets them.
* A worker that lived for a while is replaced at once. One that dies young is replaced later each time.
"""

from collections.abc import Collection

FIRST_PAUSE = 0.1  # seconds
LONGEST_PAUSE = 5.0  # seconds
OLD_ENOUGH = 10.0  # seconds of life after which a death is no sign of a worker that cannot live


def assigned(*, sockets: int, seats: int, accepting: Collection[int]) -> dict[int, tuple[int, ...]]:
    """By seat, the indices of the sockets it accepts from; only seats in `accepting` get any."""
    taken = {seat: [seat % sockets] if seat >= sockets else [] for seat in sorted(accepting)}
    if taken:
        for index in range(sockets):
            turns = ((index + step) % seats for step in range(seats))
            taken[next(seat for seat in turns if seat in taken)].append(index)
    return {seat: tuple(sorted(set(indices))) for seat, indices in taken.items()}


class Pauses:
    """How long to wait before a seat's next worker starts."""

    def __init__(self) -> None:
        self._next = 0.0

    def after(self, lived: float) -> float:
        """Seconds to wait, after a worker that lived so many seconds."""
        if lived >= OLD_ENOUGH:
            self._next = 0.0
        pause = self._next
        self._next = min(max(2 * self._next, FIRST_PAUSE), LONGEST_PAUSE)
        return pause
