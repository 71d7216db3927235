"""The worker: claims jobs, performs them and reports what came of it."""

from pyjobs.worker.foreground import run_with_signals
from pyjobs.worker.journal import AttemptFailure, Event, Report
from pyjobs.worker.worker import Worker

__all__ = ["AttemptFailure", "Event", "Report", "Worker", "run_with_signals"]
