"""What the page about pools shows can be typed."""

import re
import tomllib
from pathlib import Path

from jobwell import App, Pool
from jobwell.core.pools import parse, read

PAGE = (Path(__file__).parents[2] / "docs" / "pools.md").read_text(encoding="utf-8")


def test_each_row_of_the_table_is_a_pool() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    assert len(rows) >= 8
    for row in rows:
        (pool,) = parse(row)
        assert str(pool) == row


def test_the_command_and_the_file_are_read() -> None:
    assert [str(pool) for pool in read(re.findall(r"--pool (\S+)", PAGE))] == [
        "fast=critical,notifications:20",
        "heavy=bulk:4..12",
    ]
    (file,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert [pool.name for pool in read(tomllib.loads(file)["pools"])] == ["fast", "heavy"]


def test_the_values_make_an_app() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, object] = {"__name__": "shop"}
    exec(compile("\n".join(code), "docs/pools.md", "exec"), scope)
    app = scope["app"]
    assert isinstance(app, App)
    fast, heavy = app.settings.pools
    assert (fast.order, fast.weights, heavy.highest) == ("weighted", (3, 1), 16)
    assert isinstance(fast, Pool)
    assert app.catalog["shop.recalculate"].cost == 4
