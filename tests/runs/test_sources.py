"""Where items come from."""

from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook
from psycopg import Connection

from jobwell import App, InvalidArguments
from jobwell.runs import RunContext, csv_rows, query_rows, xlsx_rows
from jobwell.runs.items import Item
from jobwell.testing import Testbed
from tests.runs.conftest import Office, Transfer


@pytest.mark.parametrize(("delimiter", "encoding"), [(",", "utf-8"), (";", "utf-8-sig"), ("\t", "utf-8")])
def test_csv(tmp_path: Path, office: Office, bed: Testbed, delimiter: str, encoding: str) -> None:
    path = tmp_path / "people.csv"
    lines = [["employee_id", "department"], ["1", "Финансы"], ["x", "Sales"], [], ["2", '"Sales, north"']]
    path.write_text("\n".join(delimiter.join(line) for line in lines), encoding=encoding)
    run = office.operation.start(Transfer(to="Astana"), items=csv_rows(path), on_bad="skip")
    assert [(one.row, one.field) for one in run.bad_rows()] == [(3, "employee_id")]
    bed.drain()
    assert sorted(office.applied) == [1, 2]


def test_a_file_without_a_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("")
    with pytest.raises(InvalidArguments, match="no header line"):
        list(csv_rows(path))


def test_xlsx(tmp_path: Path, office: Office, bed: Testbed) -> None:
    book = Workbook()
    sheet = book.active
    for row in (
        ["employee_id", "department", None],
        [1, "Finance", "left"],
        [None, None, None],
        ["seven", "Sales", None],
        [2, "Sales", None],
    ):
        sheet.append(row)
    book.save(tmp_path / "people.xlsx")
    rows = list(xlsx_rows(tmp_path / "people.xlsx"))
    assert [(one.number, one["employee_id"]) for one in rows] == [(2, 1), (4, "seven"), (5, 2)]
    run = office.operation.start(Transfer(to="Astana"), items=rows)
    assert [(one.row, one.field, one.value) for one in run.bad_rows()] == [(4, "employee_id", "seven")]
    with pytest.raises(InvalidArguments, match="there is no sheet 'other'"):
        next(xlsx_rows(tmp_path / "people.xlsx", sheet="other"))


def test_a_query(office: Office, bed: Testbed, database_url: str, conn: "Connection[Any]") -> None:
    rows = query_rows(
        database_url, "select n as employee_id, 'Sales' as department from generate_series(1, %(last)s) n", {"last": 30}
    )
    run = office.operation.start(Transfer(to="Astana"), items=rows)
    bed.drain()
    assert run.status()["apply"].done == 30


def test_a_connection_with_another_encoding(store_settings: dict[str, Any], schema: str, conn: "Connection[Any]") -> None:
    url = store_settings["database_url"]
    app = App(database_url=f"{url}{'&' if '?' in url else '?'}client_encoding=LATIN1", schema=schema)
    mass = app.bulk("mass", item=dict[str, Any], key="name")

    @mass.stage
    async def touch(ctx: RunContext, item: Item[dict[str, Any]]) -> None: ...

    run = mass.start(items=[{"name": "Müller", "city": "Zürich"}])
    assert conn.execute("select key, data ->> 'city' from run_items").fetchall() == [("Müller", "Zürich")]
    assert run.item("Müller")
    app.close()
