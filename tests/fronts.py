"""What stands before a server in tests: where that is, and the URL that leads through."""

from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict


def target_of(url: str) -> tuple[str, int] | str:
    """Where a server listens: host and port, or the path of its socket."""
    given = conninfo_to_dict(url)
    host, port = str(given.get("host") or "127.0.0.1"), int(given.get("port") or 5432)
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)


def url_through(url: str, port: int, sslmode: str) -> str:
    """The same login and database by a port of this host."""
    given = conninfo_to_dict(url)
    login = quote(str(given.get("user") or "postgres"))
    if given.get("password"):
        login += f":{quote(str(given['password']))}"
    return f"postgresql://{login}@127.0.0.1:{port}/{quote(str(given['dbname']))}?sslmode={sslmode}"
