"""What the tasks need of the outside: the company's database and its mail server."""

import asyncio
import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from email import policy
from email.mime.text import MIMEText
from email.utils import formataddr
from typing import Any, NamedTuple

from psycopg import AsyncConnection, Connection

from jobwell import App, SettingsError
from jobwell.demo.mail import SENDER, Postman
from jobwell.demo.statements import Case
from jobwell.store.pool import LoopPool

SMTP_VARIABLE = "JOBWELL_DEMO_SMTP"
CONNECTIONS = 4  # to the database, for each process


class Addressee(NamedTuple):
    """What a letter needs to know."""

    name: str
    email: str
    position: str


class Finder:
    """Looks people up for all jobs of a loop: who asks while a query is under way is in the next one.

    Args:
        look_up: the query.
    """

    def __init__(self, look_up: Callable[[list[int]], Awaitable[dict[int, Addressee]]]) -> None:
        self._look_up = look_up
        self._asked: dict[int, asyncio.Future[Addressee | None]] = {}
        self._busy: asyncio.Task[None] | None = None

    async def find(self, employee_id: int) -> Addressee | None:
        """One of them; None: there is nobody."""
        loop = asyncio.get_running_loop()
        if employee_id not in self._asked:
            self._asked[employee_id] = loop.create_future()
        future = self._asked[employee_id]
        if self._busy is None:
            self._busy = loop.create_task(self._all())
        return await asyncio.shield(future)

    async def _all(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, {}
                try:
                    found = await self._look_up(list(asked))
                except Exception as error:  # noqa: BLE001  whoever asked must hear of it, whatever it is
                    for future in asked.values():
                        future.set_exception(error)
                    continue
                for who, future in asked.items():
                    future.set_result(found.get(who))
        finally:
            self._busy = None


class Office:
    """Made once for a process; connects at the first use.

    Owns a pool of connections and a `Postman` for each event loop.

    Args:
        app: whose database it is.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopPool] = weakref.WeakKeyDictionary()
        self._finders: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Finder] = weakref.WeakKeyDictionary()
        self._postmen: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Postman] = weakref.WeakKeyDictionary()
        self.statements = Case(app.settings.schema)

    @contextlib.contextmanager
    def transaction(self) -> "Iterator[Connection[Any]]":
        """A transaction of the company's database, for plain tasks."""
        with self._app.database.connect("demo") as conn, conn.transaction():
            yield conn

    @contextlib.asynccontextmanager
    async def database(self) -> "AsyncIterator[AsyncConnection[Any]]":
        """A connection to the company's database, for async tasks."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            await asyncio.to_thread(lambda: self._app.database.url)  # an embedded server may have to be found first
            pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = self._app.database.apool("demo", CONNECTIONS)
        async with pool.connection() as conn:
            yield conn

    async def find(self, employee_id: int) -> Addressee | None:
        """Someone's name and address as they are now."""
        loop = asyncio.get_running_loop()
        finder = self._finders.get(loop)
        if finder is None:
            finder = self._finders[loop] = Finder(self._look_up)
        return await finder.find(employee_id)

    async def _look_up(self, ids: list[int]) -> dict[int, Addressee]:
        async with self.database() as conn:
            rows = await (await conn.execute(self.statements["find"], {"ids": ids})).fetchall()
        return {row[0]: Addressee(*row[1:]) for row in rows}

    async def send(self, recipient: str, message: bytes) -> None:
        """Send a letter.

        Raises:
            aiosmtplib.SMTPException: it was not accepted.
        """
        loop = asyncio.get_running_loop()
        postman = self._postmen.get(loop)
        if postman is None:
            host, _, port = os.environ.get(SMTP_VARIABLE, "").rpartition(":")
            if not port.isdigit():
                raise SettingsError(f"{SMTP_VARIABLE} is not set; it names the mail server, such as 127.0.0.1:2525")
            postman = self._postmen[loop] = Postman(host, int(port))
        await postman.send(recipient, message)

    async def aclose(self) -> None:
        """Give back what belongs to the running loop. A worker need not: its process ends."""
        loop = asyncio.get_running_loop()
        self._finders.pop(loop, None)
        postman, pool = self._postmen.pop(loop, None), self._pools.pop(loop, None)
        if postman is not None:
            postman.close()
        if pool is not None:
            await pool.close()


def letter(person: Addressee, employee_id: int, event_version: str, department: str, key: str) -> bytes:
    """The news as a message. Its Message-ID is made from the job's key, so a second try is known to the provider."""
    text = f"Dear {person.name},\n\nfrom {event_version} you work in {department} as {person.position}.\n\nHuman Resources\n"
    message = MIMEText(text)  # a quarter of what an EmailMessage costs
    message["From"] = SENDER
    message["To"] = formataddr((person.name, person.email))
    message["Subject"] = f"Your transfer to {department}"
    message["Message-ID"] = f"<{key}@jobwell.example>"
    message["X-Employee"] = str(employee_id)
    message["X-Event"] = event_version
    return message.as_bytes(policy=policy.SMTP)
