"""``Worker``: puts the parts together, and takes them apart in order.

::

    store ─► dispatcher ─► crew ─► inbox ─► settler ─► store
                 │           ▲                 │
                 └─► hand ─► heartbeat ◄───────┘       scheduler

Each part that talks to the database has a thread and a connection of its own, so that none waits for another. The
thread that called ``run`` only waits for word, from ``stop`` or of the dispatcher's end. A word is a
``SimpleQueue.put``, the one way of telling that is safe in a signal handler, even in one that interrupts another.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from queue import Empty, SimpleQueue
from typing import Any, Literal

from pyjobs.app import Jobs
from pyjobs.duration import milliseconds, text
from pyjobs.errors import ContractMismatch, InvalidConfiguration, PyjobsError
from pyjobs.options import Duration
from pyjobs.store.base import CONTRACT_VERSION, Store
from pyjobs.worker.attempt import Hand
from pyjobs.worker.children import Children, is_child
from pyjobs.worker.dispatcher import Dispatcher, Plan
from pyjobs.worker.executors import Crew
from pyjobs.worker.heartbeat import Heartbeat
from pyjobs.worker.inbox import Inbox
from pyjobs.worker.journal import EventHook, FailureHook, Hooks, Journal, Report
from pyjobs.worker.line import Setup
from pyjobs.worker.scheduler import Duties, Scheduler
from pyjobs.worker.settler import Settler
from pyjobs.worker.trouble import Trouble

_log = logging.getLogger("pyjobs.worker")

_FAREWELL = 5.0
"""How long to wait for a thread that may be in a call to the database, in seconds."""

_LAST_CALL = 1.0
"""How long to wait after that for the call to come back, in seconds."""

_DEFAULT_PREFETCH = 2_000


@dataclass(frozen=True, slots=True)
class _Ended:
    """The dispatcher's last word."""

    error: BaseException | None


class Worker:
    """Performs the jobs of one application.

    ``queues``: the queues it takes jobs from; None: all.
    ``concurrency``: how many attempts run at once, threads, coroutines and processes together.
    ``lease``: how long the database believes a claim without a heartbeat; longer than every timeout.
    ``poll_interval``, ``max_poll_interval``: how often an idle worker looks if nothing wakes it, at first and later.
    ``grace``: how long a stopping worker lets handlers finish.
    ``schedules``: whether it fires schedules.
    ``unknown``: jobs this application does not define are left to workers that do ("leave"), or claimed and
    failed ("fail").
    ``prefetch``: how many jobs at most to hold beyond those that run, while jobs are short.

    Hooks, called from a thread of their own: ``on_error(job, failure)`` for each failed attempt, ``on_dead(job,
    failure)`` for the last one, ``on_event(event)`` for everything. Not for what happens elsewhere, such as a job
    buried after its worker was killed.

    Raises ``InvalidConfiguration`` for a setting that makes no sense, ``InvalidOption`` for what is not a duration.
    """

    def __init__(
        self,
        jobs: Jobs,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = 10,
        lease: Duration = "5m",
        poll_interval: Duration = "1s",
        max_poll_interval: Duration = "5s",
        grace: Duration = "30s",
        schedules: bool = True,
        unknown: Literal["leave", "fail"] = "leave",
        prefetch: int | None = None,
        on_dead: FailureHook | None = None,
        on_error: FailureHook | None = None,
        on_event: EventHook | None = None,
    ) -> None:
        self.id = _new_worker_id()
        self._jobs = jobs
        self._queues = None if queues is None else tuple(queues)
        self._concurrency = concurrency
        self._lease_ms = milliseconds(lease, "lease")
        self._poll = milliseconds(poll_interval, "poll_interval") / 1_000
        self._max_poll = max(self._poll, milliseconds(max_poll_interval, "max_poll_interval") / 1_000)
        self._grace = milliseconds(grace, "grace") / 1_000
        self._schedules = schedules
        self._unknown = unknown
        self._prefetch = _DEFAULT_PREFETCH if prefetch is None else prefetch
        self._hooks = Hooks(on_dead, on_error, on_event)
        self._words: SimpleQueue[Literal["stop"] | _Ended] = SimpleQueue()
        self._check_settings()

    def run(self, once: bool = False) -> Report:
        """Define what the application declares, then perform its jobs until stopped. With ``once``: fire what schedules
        are due, perform all that is due, and return; a retry in the future is left alone.

        Raises ``InvalidConfiguration``, and what the database refuses at the start, such as one of the connections it
        takes (five on PostgreSQL, four on MySQL and MariaDB); with ``once`` also ``StoreUnavailable`` when the database
        stays away for longer than the grace.
        """
        self._jobs.load_packages()
        self._check_definitions()
        setup = Setup.of(self._jobs)
        with closing(self._jobs.open_store()) as store:
            _check_contract(store)
            self._jobs.sync(store)
            store.wait(0)  # it listens from now on: nothing that comes after the first claim goes unheard
            with (
                _closing_in_time(self._jobs.open_store()) as beating,
                _closing_in_time(self._jobs.open_store()) as scheduling,
                _closing_in_time(store if store.single_writer else self._jobs.open_store()) as settling,
            ):
                for each in (beating, scheduling, settling):
                    each.now()  # or it would claim what it could neither settle nor keep: a server may have none left
                return self._run(Children(setup), store, settling, beating, scheduling, once)

    def stop(self) -> None:
        """Claim no more, finish what is held within the grace, and let ``run`` return. Called again: give back at once
        what still runs. Safe from any thread and in a signal handler."""
        self._words.put("stop")

    def _run(
        self, children: Children, store: Store, settling: Store, beating: Store, scheduling: Store, once: bool
    ) -> Report:
        hand, inbox, journal = Hand(), Inbox(), Journal(self.id, self._hooks)
        crew = Crew(self._concurrency, inbox.put, children)
        trouble = Trouble("settler")
        dispatcher = Dispatcher(self._plan(once), store, crew, hand, inbox, journal, trouble)
        settler = Settler(settling, inbox, hand, journal, trouble, dispatcher.stir)
        heartbeat = Heartbeat(beating, self.id, self._info(), self._lease_ms, hand, crew)
        scheduler = Scheduler(scheduling, Duties.of(schedules=self._schedules, lease_ms=self._lease_ms))
        self._say("started")
        try:
            if once:
                scheduler.do()
            with (
                _beside("heartbeat", heartbeat.run),
                nullcontext() if once else _beside("scheduler", scheduler.run),
                _beside("settler", settler.run, inbox.wake),
            ):
                self._attend(dispatcher)
        finally:
            crew.close()
            journal.close()
            with suppress(PyjobsError):
                store.leave(self.id)
            report = journal.report()
            self._say("stopped", **asdict(report))
        return report

    def _attend(self, dispatcher: Dispatcher) -> None:
        """Pass on each word to stop, until the dispatcher has ended."""
        thread = threading.Thread(target=self._dispatch, args=(dispatcher,), name="pyjobs-dispatcher", daemon=True)
        try:
            thread.start()  # which Ctrl-C may end too, when it runs already
            while not isinstance(word := self._words.get(), _Ended):
                dispatcher.stop()
                self._say("stopping")
        except BaseException:  # Ctrl-C where nobody has wired the signals
            dispatcher.stop()
            dispatcher.stop()
            if thread.ident is not None:  # or it was not even started
                thread.join()
            with suppress(Empty):  # its last word is not for another run
                while not isinstance(self._words.get_nowait(), _Ended):
                    pass
            raise
        if word.error is not None:
            raise word.error

    def _dispatch(self, dispatcher: Dispatcher) -> None:
        try:
            dispatcher.run()
        except BaseException as error:
            self._words.put(_Ended(error))
        else:
            self._words.put(_Ended(None))

    def _plan(self, once: bool) -> Plan:
        return Plan(
            worker=self.id,
            definitions=dict(self._jobs.definitions),
            queues=self._queues,
            names=None if self._unknown == "fail" else tuple(self._jobs.definitions),
            lease_ms=self._lease_ms,
            poll=self._poll,
            max_poll=self._max_poll,
            grace=self._grace,
            prefetch=self._prefetch,
            once=once,
        )

    def _info(self) -> dict[str, Any]:
        """What ``jobs_workers`` tells of this worker."""
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": metadata.version("pyjobs"),
            "queues": self._queues,
            "names": None if self._unknown == "fail" else sorted(self._jobs.definitions),
            "concurrency": self._concurrency,
            "lease_ms": self._lease_ms,
        }

    def _say(self, event: str, **fields: object) -> None:
        _log.info("worker %s %s", self.id, event, extra={"event": event, "worker": self.id, **fields})

    def _check_settings(self) -> None:
        for wrong, message, hint in (
            (self._concurrency < 1, f"a concurrency of {self._concurrency}", "use at least 1"),
            (self._prefetch < 0, f"a prefetch of {self._prefetch}", "use 0 for none"),
            (self._lease_ms < 100, f"a lease of {text(self._lease_ms)}", "use some minutes"),
            (self._poll == 0, "a poll_interval of 0", "use '1s'"),
            (self._queues == (), "no queues", "leave them out for all"),
            (self._unknown not in ("leave", "fail"), f"unknown={self._unknown!r}", "use 'leave' or 'fail'"),
        ):
            if wrong:
                raise InvalidConfiguration(f"a worker cannot have {message}", hint)

    def _check_definitions(self) -> None:
        definitions = self._jobs.definitions.values()
        if is_child():
            raise InvalidConfiguration(
                "a process that performs jobs for a worker was about to be a worker itself",
                'put what starts the worker under if __name__ == "__main__":',
            )
        if not definitions and self._unknown == "leave":
            raise InvalidConfiguration("the application defines no jobs", "import the modules that define them")
        for job in definitions:
            if job.timeout_ms is not None and job.timeout_ms >= self._lease_ms:
                raise InvalidConfiguration(
                    f"the lease of {text(self._lease_ms)} is not longer than the timeout of {job.name!r},"
                    f" {text(job.timeout_ms)}",
                    "give the worker a longer lease, or the job a shorter timeout",
                )


@contextmanager
def _beside(
    name: str, run: Callable[[threading.Event], None], wake: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Something runs on a thread of its own during the block, and is told when that ends: ``wake`` has it look."""
    ended = threading.Event()
    thread = threading.Thread(target=run, args=(ended,), name=f"pyjobs-{name}", daemon=True)
    try:
        thread.start()
        yield
    finally:
        ended.set()
        wake()
        if thread.ident is not None:  # or it was not even started
            thread.join(_FAREWELL)


@contextmanager
def _closing_in_time(store: Store) -> Iterator[Store]:
    """As ``closing``, but a call that does not come back, since it waits for somebody's lock, is left behind with its
    thread and connection: closing a store waits for the call in it."""
    try:
        yield store
    finally:
        thread = threading.Thread(target=store.close, name="pyjobs-closing", daemon=True)
        thread.start()
        thread.join(_LAST_CALL)


def _check_contract(store: Store) -> None:
    installed = store.contract()
    if installed != CONTRACT_VERSION:
        raise ContractMismatch(
            f"the database has version {installed} of the contract, this worker needs {CONTRACT_VERSION}",
            "pyjobs migrate, or a worker of the other version",
        )


def _new_worker_id() -> str:
    """Unique also where host names and process ids come again, as in containers."""
    return f"{socket.gethostname()[:100]}:{os.getpid()}:{secrets.token_hex(4)}"
