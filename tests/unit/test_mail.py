"""Mail on a real database, sent to a real mail server."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult

from pyjobs import Jobs, Permanent
from pyjobs.errors import InvalidArguments, InvalidConfiguration
from pyjobs.mail import DeliveryFailed, Mail, SmtpServer, parsed, stored
from pyjobs.testing import TestJobs
from servers.databases import Database


class Mailbox:
    """Takes every message, but for recipients and senders that say in their name how they are to be refused."""

    def __init__(self) -> None:
        self.taken: list[Any] = []

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        if address.startswith("refused"):
            return "550 5.7.1 not from refused@example.org"
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        if address.startswith("gone"):
            return "550 5.1.1 no such user: gone@example.org"
        if address.startswith("busy"):
            return "450 4.2.0 greylisted: busy@example.org"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.taken.append(envelope)
        return "250 taken"


class Rude(SMTP):
    """Hangs up with an error when it is told goodbye."""

    async def smtp_QUIT(self, arg: str) -> None:
        await self.push("421 no goodbye")
        self.transport.close()  # type: ignore[union-attr]


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


Serve = Callable[..., str]


@pytest.fixture
def serve(mailbox: Mailbox) -> Iterator[Serve]:
    """Starts a server with these options; its URL, without the scheme."""
    started: list[Controller] = []

    def start(kind: type[SMTP] = SMTP, **options: Any) -> str:
        class Server(Controller):
            def factory(self) -> SMTP:
                return kind(self.handler, **self.SMTP_kwargs)

            def _trigger_server(self) -> None:
                """Which waits for it to answer: at the port that the system chose."""
                self.port = self.server.sockets[0].getsockname()[1]
                super()._trigger_server()

        controller = Server(mailbox, hostname="127.0.0.1", port=0, **options)
        controller.start()
        started.append(controller)
        return f"127.0.0.1:{controller.port}"

    yield start
    for controller in started:
        controller.stop()


@pytest.fixture
def jobs(database: Database) -> Iterator[TestJobs]:
    app = Jobs(database.url, name="tests")
    yield TestJobs(app)
    app.close()


def message(to: str = "ada@example.org", sender: str = "shop@example.org") -> EmailMessage:
    made = EmailMessage()
    made["Subject"] = "Grüße aus Köln"
    made["From"] = f"Der Läden <{sender}>"
    made["To"] = to
    made["Bcc"] = "archive@example.org"
    made.set_content("Schöne Grüße, 你好\n")
    made.add_alternative("<p>Schöne Grüße, 你好</p>\n", subtype="html")
    made.add_attachment(bytes(range(256)), maintype="application", subtype="octet-stream", filename="прайс.bin")
    return made


def test_a_message_reaches_its_recipients(jobs: TestJobs, mailbox: Mailbox, serve: Serve) -> None:
    mail = Mail(jobs.app, send=f"smtp://{serve()}")
    id = mail.deliver_later(message(), delay="5m", unique_key="greeting")
    assert jobs.drain() == 0
    jobs.clock.advance(5 * 60)
    assert jobs.drain() == 1
    assert jobs.assert_enqueued("mail/deliver", queue="mailers", state="done").id == id
    [envelope] = mailbox.taken
    assert (envelope.mail_from, envelope.rcpt_tos) == ("shop@example.org", ["ada@example.org", "archive@example.org"])
    assert envelope.content.isascii()
    got = parsed(envelope.content.decode().replace("\r\n", "\n"))
    assert (got["Subject"], got["From"], got["Bcc"]) == ("Grüße aus Köln", "Der Läden <shop@example.org>", None)
    assert got["Date"]
    assert got["Message-ID"].endswith("@example.org>")
    assert [part.get_content() for part in got.walk() if not part.is_multipart()] == [
        "Schöne Grüße, 你好\n",
        "<p>Schöne Grüße, 你好</p>\n",
        bytes(range(256)),
    ]
    assert [part.get_filename() for part in got.iter_attachments()] == ["прайс.bin"]


def test_a_second_attempt_sends_the_same_message(jobs: TestJobs) -> None:
    seen = []

    def send(message: EmailMessage) -> None:
        seen.append(message.as_bytes())
        if len(seen) == 1:
            raise ConnectionResetError

    Mail(jobs.app, send=send, queue="post").deliver_later(message())
    with pytest.raises(ConnectionResetError):
        jobs.drain()
    jobs.clock.advance(60)
    assert jobs.drain() == 1
    assert seen[0] == seen[1]
    jobs.assert_enqueued("mail/deliver", queue="post", state="done")


def test_it_is_sent_if_the_transaction_commits(jobs: TestJobs, database: Database) -> None:
    sent: list[EmailMessage] = []
    mail = Mail(jobs.app, send=sent.append)
    jobs.app.sync()
    connection = database.connect()
    for end in ("ROLLBACK", "COMMIT"):
        connection.execute("BEGIN")
        mail.deliver_later(message(), connection=connection)
        connection.execute(end)
    connection.close()
    assert (jobs.drain(), len(sent)) == (1, 1)


@pytest.mark.parametrize("first", ["mail", "application"])
def test_the_applications_own_job_wins(jobs: TestJobs, first: str) -> None:
    own: list[str] = []
    if first == "mail":
        mail = Mail(jobs.app, send="smtp://nowhere.invalid")
    jobs.app.define("mail/deliver", lambda message: own.append(message), queue="own")
    if first == "application":
        mail = Mail(jobs.app, send="smtp://nowhere.invalid")
    mail.deliver_later(message())
    assert jobs.drain() == 1
    jobs.assert_enqueued("mail/deliver", queue="own")
    assert parsed(own[0])["To"] == "ada@example.org"


class TestStored:
    def test_addresses_beyond_ascii_survive(self) -> None:
        made = message("Jürgen <jürgen@müller.example>", "post@bücher.example")
        kept = parsed(stored(made))
        assert kept["To"].addresses[0].addr_spec == "jürgen@müller.example"
        assert kept["Message-ID"].endswith("@xn--bcher-kva.example>")
        assert [part.get_filename() for part in kept.iter_attachments()] == ["прайс.bin"]

    def test_elsewhere_all_is_ascii(self) -> None:
        assert stored(message()).isascii()

    def test_such_an_address_needs_a_server_that_takes_it(self, serve: Serve, mailbox: Mailbox) -> None:
        made = parsed(stored(message("jürgen@müller.example")))
        with pytest.raises(Exception, match="SMTPUTF8"):
            SmtpServer.of(f"smtp://{serve(enable_SMTPUTF8=False)}")(made)
        SmtpServer.of(f"smtp://{serve(enable_SMTPUTF8=True)}")(made)
        [envelope] = mailbox.taken
        assert envelope.rcpt_tos == ["jürgen@müller.example", "archive@example.org"]

    def test_a_body_of_eight_bits_and_long_lines_is_put_in_seven(self) -> None:
        made = EmailMessage()
        made["From"] = made["To"] = "ada@example.org"
        made.set_content("ä" * 2_000, cte="8bit")
        text = stored(made)
        assert text.partition("\n\n")[2].isascii()
        assert parsed(text).get_content() == "ä" * 2_000 + "\n"

    def test_what_it_says_of_itself_stays_and_the_given_one_is_not_touched(self) -> None:
        made = message()
        stored(made)
        assert made["Message-ID"] is None
        made["Message-ID"] = "<1@example.org>"
        made["Date"] = "Thu, 01 Jan 2026 00:00:00 +0000"
        kept = parsed(stored(made))
        assert (kept["Message-ID"], kept["Date"]) == ("<1@example.org>", "Thu, 01 Jan 2026 00:00:00 +0000")

    @pytest.mark.parametrize("missing", ["sender", "recipient"])
    def test_what_cannot_be_sent_is_refused_at_once(self, missing: str) -> None:
        made = message()
        for name in ["From"] if missing == "sender" else ["To", "Bcc"]:
            del made[name]
        with pytest.raises(InvalidArguments, match=f"has no {missing}"):
            stored(made)

    def test_so_is_what_is_no_message(self) -> None:
        with pytest.raises(InvalidArguments, match="a str is no message"):
            stored("hello")  # type: ignore[arg-type]


class TestRefused:
    @pytest.mark.parametrize(
        ("made", "kind", "told"),
        [
            (message("gone@example.org"), Permanent, "sent, but not to 1 of 2 recipients: 550 5.1.1"),
            (message("busy@example.org"), Permanent, "sent, but not to 1 of 2 recipients: 450 4.2.0"),
            (message(sender="refused@example.org"), Permanent, "refused the message: 550 5.7.1"),
        ],
    )
    def test_the_codes_are_told_and_no_address(
        self, jobs: TestJobs, serve: Serve, made: EmailMessage, kind: type[Exception], told: str
    ) -> None:
        id = Mail(jobs.app, send=f"smtp://{serve()}").deliver_later(made)
        with pytest.raises(kind, match=told):
            jobs.drain()
        [failure] = jobs.app.failures(id)
        assert "@" not in f"{failure.message}{failure.stack}"

    @pytest.mark.parametrize(
        ("to", "kind", "told"),
        [
            ("gone@example.org", Permanent, "every recipient: 550 5.1.1"),
            ("busy@example.org", DeliveryFailed, "every recipient: 450 4.2.0"),
            ("gone@example.org, busy@example.org", DeliveryFailed, "every recipient: 450 4.2.0, 550 5.1.1"),
        ],
    )
    def test_by_every_recipient(
        self, jobs: TestJobs, serve: Serve, mailbox: Mailbox, to: str, kind: type[Exception], told: str
    ) -> None:
        made = message(to)
        del made["Bcc"]
        id = Mail(jobs.app, send=f"smtp://{serve()}").deliver_later(made)
        with pytest.raises(kind, match=told):
            jobs.drain()
        [failure] = jobs.app.failures(id)
        assert "@" not in f"{failure.message}{failure.stack}"
        assert jobs.enqueued()[0].state == ("dead" if kind is Permanent else "scheduled")
        assert mailbox.taken == []

    def test_a_bad_goodbye_does_not_send_it_again(self, jobs: TestJobs, serve: Serve, mailbox: Mailbox) -> None:
        Mail(jobs.app, send=f"smtp://{serve(Rude)}").deliver_later(message())
        assert jobs.drain() == 1
        jobs.assert_enqueued("mail/deliver", state="done")
        assert len(mailbox.taken) == 1


class TestEncrypted:
    @pytest.fixture
    def context(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
        """A certificate for 127.0.0.1, which this process trusts."""
        key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
                *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
                *("-keyout", key, "-out", certificate),
            ],
            check=True,
            capture_output=True,
        )
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        return context

    @staticmethod
    def log_in(server: Any, session: Any, envelope: Any, mechanism: str, given: Any) -> AuthResult:
        return AuthResult(success=(given.login, given.password) == (b"shop", b"p@ss"))

    @pytest.mark.parametrize("scheme", ["smtp+starttls", "smtps"])
    def test_a_password_goes_encrypted(
        self, serve: Serve, mailbox: Mailbox, context: ssl.SSLContext, scheme: str
    ) -> None:
        tls: dict[str, Any] = {"tls_context": context} if scheme == "smtp+starttls" else {"ssl_context": context}
        place = serve(authenticator=self.log_in, auth_required=True, auth_require_tls=scheme != "smtps", **tls)
        SmtpServer.of(f"{scheme}://shop:p%40ss@{place}")(message())
        assert len(mailbox.taken) == 1

    def test_never_to_a_server_without(self, serve: Serve, mailbox: Mailbox) -> None:
        with pytest.raises(Exception, match="STARTTLS"):
            SmtpServer.of(f"smtp+starttls://shop:secret@{serve()}")(message())
        assert mailbox.taken == []

    @pytest.mark.parametrize(
        ("url", "told"),
        [
            ("smtp://shop:secret@host", "in clear"),
            ("http://shop:secret@host", "is no mail server"),
            ("smtp://host:no", "is no mail server"),
            ("smtps://", "names no host"),
            ("smtps://shop:secret@host/path", "goes on after its host"),
            ("smtps://shop:12/secret@host", "goes on after its host"),
            ("smtp://host?timeout=5", "goes on after its host"),
        ],
    )
    def test_what_makes_no_sense_is_refused_and_no_password_shown(self, url: str, told: str) -> None:
        with pytest.raises(InvalidConfiguration, match=told) as refusal:
            Mail(Jobs(), send=url)
        assert "secret" not in f"{refusal.value.message}{refusal.value.hint}"

    def test_neither_a_server_nor_a_function(self) -> None:
        with pytest.raises(InvalidConfiguration, match="send is a int"):
            Mail(Jobs(), send=25)  # type: ignore[arg-type]

    def test_a_server_does_not_show_its_password(self) -> None:
        assert "secret" not in repr(SmtpServer.of("smtps://shop:secret@host"))
