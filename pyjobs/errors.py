"""Every error a caller can meet, with the stable code it carries and the contract code it comes from.

A database refuses with a ``PJ`` code (docs/errors.md); a store turns it into the exception of the same
line in :data:`FROM_CONTRACT`. No message ever holds a job's arguments.
"""

from __future__ import annotations

from typing import ClassVar


class PyjobsError(Exception):
    """Base of all errors raised on purpose. ``code`` is stable; ``hint`` says what to do, or is empty."""

    code: ClassVar[str] = "PYJOBS_FAILED"
    contract_code: ClassVar[str | None] = None

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # which a traceback shows on the line after the message


class UnknownJob(PyjobsError):
    """No job of that name is defined."""

    code = "PYJOBS_UNKNOWN_JOB"
    contract_code = "PJ001"


class InvalidArguments(PyjobsError):
    """Arguments are not JSON, would not come back the same, or are too large."""

    code = "PYJOBS_INVALID_ARGUMENTS"
    contract_code = "PJ002"


class InvalidOption(PyjobsError):
    """An option or filter is unknown, or its value is not one it takes."""

    code = "PYJOBS_INVALID_OPTION"
    contract_code = "PJ003"


class BatchClosed(PyjobsError):
    """The batch is sealed and takes no more jobs."""

    code = "PYJOBS_BATCH_CLOSED"
    contract_code = "PJ004"


class UnknownBatch(PyjobsError):
    """There is no such batch."""

    code = "PYJOBS_UNKNOWN_BATCH"
    contract_code = "PJ005"


class JobRunning(PyjobsError):
    """The job is running, so it can be neither put back nor deleted."""

    code = "PYJOBS_JOB_RUNNING"
    contract_code = "PJ006"


class UniqueKeyHeld(PyjobsError):
    """The job's unique key is held by another job."""

    code = "PYJOBS_UNIQUE_KEY_HELD"
    contract_code = "PJ007"


class LimitConflict(PyjobsError):
    """Jobs of one concurrency group disagree on its limit."""

    code = "PYJOBS_LIMIT_CONFLICT"
    contract_code = "PJ008"


class OtherTenant(PyjobsError):
    """Another tenant is in scope than the one named."""

    code = "PYJOBS_OTHER_TENANT"
    contract_code = "PJ009"


class BadName(PyjobsError):
    """A tenant, key or name is too long or empty."""

    code = "PYJOBS_BAD_NAME"
    contract_code = "PJ010"


class InvalidSchedule(PyjobsError):
    """The schedule cannot be read, or never comes round."""

    code = "PYJOBS_INVALID_SCHEDULE"
    contract_code = "PJ011"


class ContractMismatch(PyjobsError):
    """The driver and the contract installed in the database do not fit, or none is installed."""

    code = "PYJOBS_CONTRACT_MISMATCH"
    contract_code = "PJ012"


class StoreUnavailable(PyjobsError):
    """The database cannot be reached, or went away and did not come back in time."""

    code = "PYJOBS_STORE_UNAVAILABLE"


class DriverMissing(PyjobsError):
    """The Python package for this kind of database is not installed."""

    code = "PYJOBS_DRIVER_MISSING"


class InvalidConfiguration(PyjobsError):
    """A setting, URL, definition or command-line value is unusable."""

    code = "PYJOBS_INVALID_CONFIGURATION"


FROM_CONTRACT: dict[str, type[PyjobsError]] = {
    error.contract_code: error
    for error in (
        UnknownJob,
        InvalidArguments,
        InvalidOption,
        BatchClosed,
        UnknownBatch,
        JobRunning,
        UniqueKeyHeld,
        LimitConflict,
        OtherTenant,
        BadName,
        InvalidSchedule,
        ContractMismatch,
    )
    if error.contract_code is not None
}
