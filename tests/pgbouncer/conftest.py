"""A PgBouncer of the module's own."""

import os
import shutil
from collections.abc import Iterator

import pytest

from jobwell import App
from tests.pgbouncer.helpers import PROGRAM, Bouncer


@pytest.fixture(scope="module")
def bouncer(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bouncer]:
    """In transaction mode, with few connections."""
    if PROGRAM is None:
        if os.environ.get("CI"):
            pytest.fail("PgBouncer is not installed, and in CI the path through it must be tested (apt-get install pgbouncer)")
        pytest.skip("not tested: PgBouncer is not installed")
    folder = tmp_path_factory.mktemp("pgbouncer")
    made = Bouncer(database_url, folder)
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def pooled(bouncer: Bouncer, schema: str, conn: object) -> Iterator[App]:
    """An app that knows only the pooler."""
    app = App(bouncer.url, schema=schema)
    yield app
    app.close()
