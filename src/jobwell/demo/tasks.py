"""The tasks of the case, as an application would declare them: `jobwell worker jobwell.demo.tasks:app`."""

from datetime import UTC, datetime

import aiosmtplib

from jobwell import App, Backoff, Context, Delays, Reject, Retry, SyncContext
from jobwell.demo import mail
from jobwell.demo.office import Office, letter

app = App()
office = Office(app)
BRIEFLY = Backoff("200ms", factor=2, cap="2s")


@app.task(name="hr.apply_batch", queue="bulk", timeout="1m", retry=BRIEFLY, owner="hr-it")
def apply_batch(ctx: SyncContext, ids: list[int], event_version: str) -> int:
    """Move these people, and owe each of them a notice: both or neither. Returns how many were moved just now."""
    with office.transaction() as conn:
        moved = conn.execute(office.statements["apply"], {"event": event_version, "ids": ids}).fetchall()
        if not moved:
            ctx.logger.info("this batch was applied before")
            return 0
        notices = (notify.job(employee_id=who, event_version=event_version, department=where) for who, where in moved)
        app.enqueue_many(notices, conn=conn)
        done = conn.execute(office.statements["applied"], {"event": event_version, "people": len(moved)}).fetchone()
        if done is not None and done[0]:
            recalculate.using(conn=conn).enqueue(event_version=event_version)
    return len(moved)


@app.task(
    name="hr.notify", queue="notifications", timeout="30s", deadline="2h", tenant="department", owner="hr-it",
    retry=Delays("200ms", "500ms", "1s", "2s"),
)  # fmt: skip
async def notify(ctx: Context, employee_id: int, event_version: str, department: str) -> None:
    """Tell one person by mail. The Message-ID is the job's key: whatever is tried again is not delivered again."""
    person = await office.find(employee_id)
    if person is None:
        raise Reject("no_such_employee", f"employee {employee_id} is gone")
    message = letter(person, employee_id, event_version, department, ctx.idempotency_key)
    try:
        await office.send(person.email, message)
    except aiosmtplib.SMTPException as error:
        answer = mail.answer(error)
        if answer is None:
            raise
        if answer.code < 500:
            raise Retry(f"the mail server put it off: {answer}") from error
        raise Reject("invalid_address", f"the mail server refuses {person.email}: {answer}") from error


@app.task(name="hr.recalculate", queue="reports", timeout="1m", retry=BRIEFLY, owner="hr-it")
def recalculate(event_version: str) -> int:
    """Count the heads of each department anew. Returns the number of departments."""
    with office.transaction() as conn:
        conn.execute(office.statements["clear_report"], {"event": event_version})
        return conn.execute(office.statements["report"], {"event": event_version}).rowcount


@app.task(name="hr.urgent", queue="notifications", priority=90, timeout="10s", retry=BRIEFLY, owner="security")
async def urgent(number: int) -> None:
    """An urgent notice, such as a lost access card. It notes when it began."""
    now = datetime.now(UTC)
    async with office.database() as conn:
        await conn.execute(office.statements["begin"], {"now": now, "number": number})
