"""What the tests of checkpoints, loops, progress and transactions have in common."""

from typing import Any
from uuid import uuid4

from psycopg import Connection
from pydantic import BaseModel


class Cursor(BaseModel):
    """Where a job is."""

    after: int = 0
    sent: int = 0


def take_away(conn: "Connection[Any]", job: Any) -> None:
    """What a rescue and the claim of another worker do to a job that runs: another attempt has it from now on."""
    conn.execute("update jobs set claim_id = %s, attempt = attempt + 1 where id = %s and state = 'running'", [uuid4(), job.id])


def kept(conn: "Connection[Any]", job: Any, name: str = "") -> Any:
    """What a job keeps, as JSON."""
    row = conn.execute("select value from checkpoints where job_id = %s and name = %s", [job.id, name]).fetchone()
    return row[0] if row else None
