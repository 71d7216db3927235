"""Mail that is sent later: ``deliver_later`` enqueues the message, a worker sends it, again and again if it must.

The message is stored as text in seven bits, what it holds in base64 or quoted, so that it comes out of any database as
it went in; only addresses beyond ASCII, for which there is no such writing, make headers in Unicode. Its date and
Message-ID are set when it is enqueued: a worker that is killed right after sending leaves a job that sends again, and
by the same Message-ID a mailbox can tell.

When the server has taken a message, nothing that follows can fail the attempt. What the server says of a refusal often
repeats an address, so of that only the codes are told.
"""

from __future__ import annotations

import email
import smtplib
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from email import policy
from email.message import EmailMessage
from email.utils import getaddresses, localtime, make_msgid
from typing import Any, NoReturn, Self, Unpack
from urllib.parse import unquote, urlsplit
from uuid import UUID

from pyjobs.app import Jobs
from pyjobs.config import redacted
from pyjobs.context import Permanent
from pyjobs.definition import JobOptions
from pyjobs.errors import InvalidArguments, InvalidConfiguration
from pyjobs.options import EnqueueOptions

Send = Callable[[EmailMessage], object]
"""Sends one message, or raises: ``Permanent`` if trying again cannot help."""

_SEVEN_BITS = policy.default.clone(cte_type="7bit")
_DEFAULTS: JobOptions = {"queue": "mailers", "max_attempts": 10}
"""With the default backoff that is some five hours of trying: greylisting takes minutes, an outage longer."""
_RECIPIENTS = ("To", "Cc", "Bcc")
_PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}
_PATIENCE = 30.0
"""How long to wait for each of the server's answers, in seconds."""


class DeliveryFailed(Exception):
    """The mail server did not take the message, this time."""


class Mail:
    """An application's mail. Defines the job that sends it; one of that name that the application defines wins.

    ``send``: a function that sends one ``EmailMessage``, or the URL of a mail server: ``smtp://host``, in clear and
    without a password; ``smtp+starttls://user:password@host``; ``smtps://user:password@host``.
    ``options``: those of the job; ten attempts and the queue ``mailers`` unless they say otherwise.
    Raises ``InvalidConfiguration`` for a URL that cannot be used.
    """

    def __init__(
        self, jobs: Jobs, *, send: Send | str, name: str = "mail/deliver", **options: Unpack[JobOptions]
    ) -> None:
        self.name = name
        self._jobs = jobs
        sender = SmtpServer.of(send) if isinstance(send, str) else send
        if not callable(sender):
            raise InvalidConfiguration(
                f"send is a {type(send).__name__}", "pass smtp://host, or a function that takes the message"
            )
        given: JobOptions = {**_DEFAULTS, **options}

        def deliver(message: str) -> None:
            sender(parsed(message))

        jobs.include(lambda jobs: jobs.define(name, deliver, **given))

    def deliver_later(
        self, message: EmailMessage, *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> UUID:
        """Enqueue the message; the job's id. With ``connection`` it is sent if and only if the transaction that is
        open there commits. ``InvalidArguments`` for what could not be sent."""
        return self._jobs.enqueue(self.name, {"message": stored(message)}, connection=connection, **options)


def stored(message: EmailMessage) -> str:
    """The message as text that any database keeps, dated, and with a Message-ID of its own."""
    if not isinstance(message, EmailMessage):
        raise InvalidArguments(f"a {type(message).__name__} is no message", "make an email.message.EmailMessage")
    if not message["From"]:
        raise InvalidArguments("the message has no sender", "set From")
    if not any(message[name] for name in _RECIPIENTS):
        raise InvalidArguments("the message has no recipient", "set To, Cc or Bcc")
    kept = parsed(_text(message))
    if "Date" not in kept:
        kept["Date"] = localtime()
    if "Message-ID" not in kept:
        [(_, sender), *_] = _addresses(kept, "From")
        kept["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2].encode("idna").decode() or "localhost")
    return _text(kept)


def parsed(text: str) -> EmailMessage:
    """The message again."""
    return email.message_from_string(text, EmailMessage, policy=policy.default)


def _text(message: EmailMessage) -> str:
    wide = any(not address.isascii() for _, address in _addresses(message, "From", "Sender", *_RECIPIENTS))
    return message.as_bytes(policy=_SEVEN_BITS.clone(utf8=wide)).decode("utf-8")


def _addresses(message: EmailMessage, *names: str) -> list[tuple[str, str]]:
    """What these headers name, each with the name it goes by."""
    return getaddresses([str(each) for name in names for each in message.get_all(name, [])])


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """A mail server; called, it is given one message over a connection of its own."""

    scheme: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)

    @classmethod
    def of(cls, url: str) -> Self:
        try:
            parts = urlsplit(url)
            port = parts.port or _PORTS[parts.scheme]
        except (ValueError, KeyError):
            raise InvalidConfiguration(
                f"{redacted(url)!r} is no mail server", "write " + ", ".join(f"{scheme}://host" for scheme in _PORTS)
            ) from None
        if not parts.hostname:
            raise InvalidConfiguration(f"{redacted(url)!r} names no host", f"write {parts.scheme}://host")
        if parts.path.strip("/") or parts.query or parts.fragment:  # not shown: may be what follows a / in a password
            raise InvalidConfiguration(
                f"the {parts.scheme}:// URL of the mail server goes on after its host",
                f"write {parts.scheme}://host:port, and / ? # in a password as %2F %3F %23",
            )
        if parts.username and parts.scheme == "smtp":
            raise InvalidConfiguration(
                f"over {redacted(url)!r} a password would be sent in clear", "write smtp+starttls:// or smtps://"
            )
        return cls(parts.scheme, parts.hostname, port, unquote(parts.username or ""), unquote(parts.password or ""))

    def __call__(self, message: EmailMessage) -> None:
        """Give it the message. ``Permanent`` when it refuses it for good, or takes it for some recipients only, since
        another attempt would send it to those again."""
        recipients = len(
            getaddresses([str(each) for name in ("To", "Cc", "Bcc") for each in message.get_all(name, [])])
        )
        server = self._connected()
        try:
            refused = server.send_message(message)
        except smtplib.SMTPRecipientsRefused as error:
            _refuse("every recipient", error.recipients.values())
        except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
            _refuse("the message", [(error.smtp_code, error.smtp_error)])
        finally:
            with suppress(smtplib.SMTPException, OSError):
                server.quit()
            server.close()
        if refused:
            raise Permanent(f"sent, but not to {len(refused)} of {recipients} recipients: {_codes(refused.values())}")

    def _connected(self) -> smtplib.SMTP:
        if self.scheme == "smtps":
            context = ssl.create_default_context()
            server: smtplib.SMTP = smtplib.SMTP_SSL(self.host, self.port, timeout=_PATIENCE, context=context)
        else:
            server = smtplib.SMTP(self.host, self.port, timeout=_PATIENCE)
        try:
            if self.scheme == "smtp+starttls":
                server.starttls(context=ssl.create_default_context())
            if self.user:
                server.login(self.user, self.password)
        except BaseException:
            server.close()
            raise
        return server


def _refuse(what: str, answers: Collection[tuple[int, bytes | str]]) -> NoReturn:
    """Without the exception it comes from, which tells the addresses."""
    kind = Permanent if all(code >= 500 for code, _ in answers) else DeliveryFailed
    raise kind(f"the mail server refused {what}: {_codes(answers)}") from None


def _codes(answers: Collection[tuple[int, bytes | str]]) -> str:
    """``550 5.1.1``: the code, and the enhanced one of RFC 3463 where the text begins with it."""
    return ", ".join(sorted({" ".join([str(code), *_enhanced(said)]) for code, said in answers}))


def _enhanced(said: bytes | str) -> list[str]:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    first = text.partition(" ")[0]
    return [first] if first.count(".") == 2 and first.replace(".", "").isdecimal() else []
