"""The worker: claims jobs, performs them and reports what came of it."""

from pyjobs.worker.journal import AttemptFailure, Event, Report
from pyjobs.worker.worker import Worker, run_with_signals

__all__ = ["AttemptFailure", "Event", "Report", "Worker", "run_with_signals"]
