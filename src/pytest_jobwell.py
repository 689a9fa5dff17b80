"""The pytest plugin: the fixture `testbed`. It stands outside the package so that a run without jobs imports nothing of it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jobwell import App
    from jobwell.testing import Schema, Testbed

__all__ = ["jobwell_app", "jobwell_database_url", "jobwell_schema", "pytest_addoption", "testbed"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option and the ini line."""
    parser.getgroup("jobwell").addoption(
        "--jobwell-database-url",
        metavar="URL",
        default="",
        help="PostgreSQL for tests of jobs (default: JOBWELL_TEST_DATABASE_URL, else an embedded server)",
    )
    parser.addini("jobwell_app", "the App whose jobs are tested, as 'package.module:attribute'", default="")


@pytest.fixture(scope="session")
def jobwell_database_url(pytestconfig: pytest.Config) -> str:
    """The server for tests, or "" for what JOBWELL_TEST_DATABASE_URL says. Override it to give one."""
    url: str = pytestconfig.getoption("--jobwell-database-url")
    return url


@pytest.fixture(scope="session")
def jobwell_app(pytestconfig: pytest.Config) -> "App":
    """The App under test: as the ini line `jobwell_app` says, else `app` in jobwell.toml. Override it, at any scope."""
    from jobwell import settings
    from jobwell.core.errors import JobwellError
    from jobwell.services import load_app

    target: str = pytestconfig.getini("jobwell_app") or settings.load(folder=pytestconfig.rootpath).app
    if not target:
        raise pytest.UsageError(
            "testbed: no app is named. Put `jobwell_app = shop.jobs:app` into the pytest section of pyproject.toml, pytest.ini"
            " or setup.cfg, or write a fixture `jobwell_app` that returns the App"
        )
    try:
        return load_app(target)
    except JobwellError as error:
        raise pytest.UsageError(f"jobwell_app = {target}: {error.message}") from error


@pytest.fixture(scope="session")
def jobwell_schema(jobwell_database_url: str) -> "Iterator[Schema]":
    """A migrated schema for this run (with xdist: for this process); dropped at its end."""
    from jobwell.testing import Schema

    with Schema(jobwell_database_url) as schema:
        yield schema


@pytest.fixture
def testbed(jobwell_app: "App", jobwell_schema: "Schema") -> "Iterator[Testbed]":
    """The app on empty tables: run its jobs, look at them, travel in time."""
    from jobwell.testing import Testbed

    with Testbed(jobwell_app, schema=jobwell_schema) as bed:
        yield bed
