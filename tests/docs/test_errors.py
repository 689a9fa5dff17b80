"""The page about errors says what the table says, and its example declares what it shows."""

import re

from jobwell import App
from jobwell.core.classify import classify
from tests.docs.errors_page import FILE, REWRITE, page


def test_the_page_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == page(), f"docs/errors.md is not what the table says; write it anew: {REWRITE}"


def test_the_example_declares_what_it_shows() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", page(), re.DOTALL)
    names: dict[str, object] = {"__name__": "shop"}
    exec(compile(code, "docs/errors.md", "exec"), names)  # this is the test
    app = names["app"]
    assert isinstance(app, App)
    rules = app.catalog["shop.charge"].errors

    def kind(module: str, name: str) -> str:
        return classify(type(name, (Exception,), {"__module__": module})(), rules).kind

    assert kind("shop.sms", "Busy") == "throttled"
    assert kind("shop.payment", "Declined") == "logical"
    assert classify(ValueError(), rules).kind == "temporary"
