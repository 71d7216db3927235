"""Background jobs whose guarantees live in the database you already run."""

from pyjobs.app import Jobs, Schedule, Stats
from pyjobs.batch import Batch
from pyjobs.context import BatchCounts, JobContext, Permanent, RetryAfter, Snooze
from pyjobs.definition import Backoff, Concurrency, Job
from pyjobs.errors import PyjobsError

__all__ = [
    "Backoff",
    "Batch",
    "BatchCounts",
    "Concurrency",
    "Job",
    "JobContext",
    "Jobs",
    "Permanent",
    "PyjobsError",
    "RetryAfter",
    "Schedule",
    "Snooze",
    "Stats",
]
