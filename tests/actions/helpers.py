"""Failed jobs to be reported."""

import io
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from psycopg import Connection

from jobwell import App
from jobwell.actions import report
from jobwell.core.report import Summary, Wanted

DAY = timedelta(days=1)
ALMATY = ZoneInfo("Asia/Almaty")
FILL = """
insert into {schema}.quarantine (id, failed_at, enqueued_at, run_at, gate, rank, attempt, failures, crashes, losses, postponements,
  bytes, queue, task, tenant, lock_key, reason, code, error_type, message, fingerprint, meta)
select gen_random_uuid(), {schema}.now() - %(ago)s::interval - n * interval '1 ms', {schema}.now(), {schema}.now(), 0, 100, 1, 1, 0, 0, 0, 2,
  'mail', %(task)s, coalesce(%(tenant)s, 'branch ' || n %% 3), '', %(reason)s, %(code)s, %(error)s, coalesce(%(message)s, 'no. ' || n),
  %(task)s || ':' || coalesce(%(code)s, 'x'), json_build_object('initiator', %(initiator)s::text, 'request_id', n)
  from generate_series(1, %(count)s) n
"""


class Failed:
    """Puts failed jobs into the quarantine."""

    def __init__(self, app: App, conn: "Connection[Any]") -> None:
        self.database, self._conn, self._sql = app.database, conn, FILL.replace("{schema}", app.settings.schema)

    def put(self, count: int, **columns: Any) -> None:
        """So many, a millisecond apart."""
        usual = {
            "ago": "1 minute", "task": "hr.notify", "tenant": None, "reason": "rejected", "code": None, "error": "Reject", "message": None,
            "initiator": "olga",
        }  # fmt: skip
        self._conn.execute(self._sql, {**usual, **columns, "count": count})

    def find(self, since: timedelta = DAY, **wanted: Any) -> Summary:
        """What a report would be made of."""
        return report.find(self.database, Wanted(**wanted), since)

    def write(self, found: Summary, form: str, **more: Any) -> bytes:
        """The report in a format."""
        file = io.BytesIO()
        report.write(self.database, found, form, file, zone=ALMATY, **more)
        return file.getvalue()
