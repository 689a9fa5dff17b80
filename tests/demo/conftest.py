"""A small world for the demo's parts, in schemas that belong to this test process."""

import os
from collections.abc import Iterator

import pytest

from jobwell import settings
from jobwell.demo.world import World, demo_settings, world

PEOPLE = 300


@pytest.fixture
def place(database_url: str) -> Iterator[World]:
    """The first 300 people, loaded; nobody works."""
    given = settings.load({"database_url": database_url, "schema": f"jwtest_{os.getpid()}_part"})
    with world(demo_settings(given), PEOPLE, keep=False) as place:
        yield place
