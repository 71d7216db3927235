"""The one thread that settles: it tells the database what attempts came to, as many at once as have ended meanwhile.

Where the database lets two write at once it has a connection of its own, so that neither it nor the dispatcher waits
for the other: while one call settles another claims, and the crew goes on.

Nothing is lost by a call that fails. An ending stays in the inbox until the database has answered for it, and settling
again what was settled is answered the same. An outcome that the database refuses (a delay it does not take, say) is
sent again as a plain failure, so that it can hold up neither the others nor its own job.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pyjobs.errors import ContractMismatch, InvalidConfiguration, PyjobsError, StoreUnavailable
from pyjobs.records import Outcome, Settled
from pyjobs.store.base import Store
from pyjobs.worker import outcomes
from pyjobs.worker.attempt import Ending, Hand
from pyjobs.worker.inbox import Inbox
from pyjobs.worker.journal import Journal
from pyjobs.worker.trouble import Trouble

_log = logging.getLogger("pyjobs.worker")

_MOST = 1_000
"""Endings in one call."""

_WHATEVER_IS_SENT = (StoreUnavailable, ContractMismatch, InvalidConfiguration)
"""Errors that say nothing of an outcome: the database is away, is being migrated, or lets this user do nothing."""

Answered = tuple[Ending, Outcome, Settled | None]


class Settler:
    """Settles what comes into the inbox, and calls ``settled`` each time: jobs have left the hand, and their slots may
    be free."""

    def __init__(
        self,
        store: Store,
        inbox: Inbox,
        hand: Hand,
        journal: Journal,
        trouble: Trouble,
        settled: Callable[[], None],
    ) -> None:
        self._store = store
        self._inbox = inbox
        self._hand = hand
        self._journal = journal
        self._settled = settled
        self._trouble = trouble

    def run(self, ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                self._inbox.sleep()
                self._settle()
            except Exception as error:  # whatever the database does, handlers go on and are settled later
                ended.wait(self._trouble.met(error))

    def _settle(self) -> None:
        endings = self._inbox.first(_MOST)
        answered = self._answers([(each, each.outcome) for each in endings if each.outcome is not None])
        self._trouble.over()
        self._hand.drop(each.claimed for each in endings)
        try:
            self._tell(endings, answered)
        finally:  # only now: who owes nothing has told everything
            self._inbox.remove(len(endings))
            self._settled()

    def _tell(self, endings: list[Ending], answered: list[Answered]) -> None:
        for ending, outcome, answer in answered:
            self._journal.settled(ending, outcome, answer)
        for ending in endings:
            if ending.outcome is None:
                self._journal.lost(ending)

    def _answers(self, ended: list[tuple[Ending, Outcome]]) -> list[Answered]:
        """What the database says to each outcome, and which outcome it took in the end."""
        if not ended:
            return []
        try:
            answers = self._store.settle_many([outcome for _, outcome in ended])
        except _WHATEVER_IS_SENT:
            raise
        except PyjobsError:  # one of them is refused: find it, so that the others do not wait for it
            return [self._answer(ending, outcome) for ending, outcome in ended]
        return [(ending, outcome, answer) for (ending, outcome), answer in zip(ended, answers, strict=True)]

    def _answer(self, ending: Ending, outcome: Outcome) -> Answered:
        """The same of one alone: where it is refused, its attempt has failed."""
        try:
            return ending, outcome, self._store.settle_many([outcome])[0]
        except _WHATEVER_IS_SENT:
            raise
        except PyjobsError as refusal:
            _log.error("an outcome of %s was refused: %s", ending.claimed.id, refusal)
            outcome = outcomes.refused(ending.claimed, refusal)
        try:
            return ending, outcome, self._store.settle_many([outcome])[0]
        except _WHATEVER_IS_SENT:
            raise
        except PyjobsError as refusal:
            _log.error("%s cannot be settled at all, and is left to its lease: %s", ending.claimed.id, refusal)
            return ending, outcome, None
