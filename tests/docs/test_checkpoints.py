"""The examples of docs/checkpoints.md run, word for word, and do what the page says."""

import re
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection
from pydantic import BaseModel

from jobwell import App, Context
from tests.worker.helpers import Desk, working

PAGE = Path(__file__).parents[2] / "docs" / "checkpoints.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


async def test_the_examples_run(app: App, conn: "Connection[Any]", database_url: str, schema: str) -> None:
    sent: list[int] = []

    async def send_letter(person: dict[str, int], year: int) -> None:
        sent.append(person["id"])

    names: dict[str, Any] = {
        "__name__": "shop", "app": app, "Context": Context, "BaseModel": BaseModel, "psycopg": psycopg, "send_letter": send_letter,
        "url": psycopg.conninfo.make_conninfo(database_url, options=f"-c search_path={schema}"),
    }  # fmt: skip
    conn.execute("create table booked (n integer)")
    conn.execute("create table closed (month text)")
    try:
        for example in EXAMPLES:
            code = example.replace('"insert into closed', f'"insert into {schema}.closed')
            exec(compile(code, str(PAGE), "exec"), names)
        desk = Desk(app, conn)
        async with working(app):
            for job, result in (
                (await names["import_pages"].aenqueue(), "50"), (await names["book"].aenqueue(), None),
                (await names["close_month"].aenqueue("2030-01"), "1"),
            ):  # fmt: skip
                assert (await desk.end(job))["result"] == result
            assert await desk.settled() == {"succeeded": 4}
        assert sent == list(range(1, 251))
        assert desk.one("select count(*), count(distinct n) from booked") == (250, 250)
        assert desk.all("select month from closed") == ["2030-01"]
    finally:
        conn.execute("drop table booked, closed")
        await app.aclose()
