"""The migrated schema as text, so that what a migration does is seen in review.

python -m tests.sql.snapshot        writes tests/sql/schema.snapshot anew, from the server that the tests use
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection, sql

from jobwell import settings
from jobwell.store.database import Database
from jobwell.store.migrations import migrate

FILE = Path(__file__).with_name("schema.snapshot")
REWRITE = "python -m tests.sql.snapshot"

_RELATIONS = """
select c.oid, c.relname, pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid), c.reloptions
  from pg_class c where c.relnamespace = %s::regnamespace and c.relkind in ('r', 'p') and c.relname !~ '_[0-9]{8}$' order by 2"""
_COLUMNS = """
select a.attname, format_type(a.atttypid, a.atttypmod), case when a.attcollation <> t.typcollation then l.collname end, a.attnotnull,
       pg_get_expr(d.adbin, d.adrelid), a.attidentity::text, case when a.attstorage <> t.typstorage then a.attstorage::text end
  from pg_attribute a join pg_type t on t.oid = a.atttypid left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  left join pg_collation l on l.oid = a.attcollation
 where a.attrelid = %s and a.attnum > 0 and not a.attisdropped order by a.attnum"""
# PostgreSQL 18 keeps "not null" as constraints ('n') too; it is told with the columns.
_CONSTRAINTS = "select conname, pg_get_constraintdef(oid) from pg_constraint where conrelid = %s and contype <> 'n' order by 1"
_INDEXES = "select pg_get_indexdef(indexrelid) from pg_index where indrelid = %s order by 1"
_FUNCTIONS = """
select p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), l.lanname, p.provolatile::text, p.proparallel::text,
       p.proconfig, p.prosrc
  from pg_proc p join pg_language l on l.oid = p.prolang where p.pronamespace = %s::regnamespace order by 1, 2"""
_OTHERS = """
select c.relkind::text, c.relname from pg_class c where c.relnamespace = %s::regnamespace and c.relkind in ('S', 'v', 'm', 'f', 'c') order by 1, 2"""


def describe(conn: "Connection[Any]", schema: str, *, bodies: bool = False) -> str:
    """Tables, columns, constraints, indexes and functions of a schema, under the name `jobwell`; daily partitions left out.

    Args:
        bodies: also what the functions do; the committed snapshot leaves that to their source files.
    """
    conn.execute("select set_config('search_path', 'pg_catalog', false)")
    lines: list[str] = []
    for oid, table, key, bound, options in conn.execute(_RELATIONS, [schema]).fetchall():
        kind = f" partition by {key}" if key else f" partition {bound}" if bound else ""
        lines += ["", f"table {table}{kind}{f' with {sorted(options)}' if options else ''}"]
        for name, type_, collation, required, default, identity, storage in conn.execute(_COLUMNS, [oid]).fetchall():
            parts = [f"  {name:<15}{type_}"]
            parts += [f'collate "{collation}"'] if collation else []
            parts += ["not null"] if required else []
            parts += [f"default {default}"] if default else []
            parts += [f"identity {identity}"] if identity else []
            parts += [f"storage {storage}"] if storage else []
            lines.append(" ".join(parts))
        lines += [f"  constraint {name}: {text}" for name, text in conn.execute(_CONSTRAINTS, [oid]).fetchall()]
        lines += [f"  {text}" for (text,) in conn.execute(_INDEXES, [oid]).fetchall()]
    lines.append("")
    for name, arguments, result, language, volatility, parallel, config, body in conn.execute(_FUNCTIONS, [schema]).fetchall():
        lines += [
            f"function {name}({arguments})",
            f"  returns {result}",
            f"  {language} volatility {volatility} parallel {parallel}",
        ]
        lines += [f"  set {entry}" for entry in config or ()]
        lines += [body] if bodies else []
    lines += [f"other {kind} {name}" for kind, name in conn.execute(_OTHERS, [schema]).fetchall()]
    return "\n".join(lines).replace(f"{schema}.", "jobwell.").strip() + "\n"


def main() -> None:
    """Migrate a throw-away schema and write what came out."""
    url = os.environ.get("JOBWELL_TEST_DATABASE_URL", "")
    if not url:
        from jobwell import embedded

        folder = Path(tempfile.mkdtemp(prefix="jobwell-snapshot-"))
        folder.chmod(0o755)  # where root runs this, the server is run by another account
        url = embedded.start(folder).url
    schema = f"jwsnap_{os.getpid()}"
    migrate(Database(settings.load({"database_url": url, "schema": schema})))
    with psycopg.connect(url, autocommit=True) as conn:
        FILE.write_text(describe(conn, schema), encoding="utf-8")
        conn.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(schema)))
    sys.stdout.write(f"{FILE} is written\n")


if __name__ == "__main__":
    main()
