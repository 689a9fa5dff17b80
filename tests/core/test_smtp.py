"""The URL of a mail server: what it says, and what is never shown of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwell import SettingsError
from jobwell.core.smtp import masked, read


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("smtp://mail.example", ("mail.example", 25, "", False, None, True, "jobwell@mail.example")),
        ("smtp://jobs:secret@mail.example", ("mail.example", 587, "jobs", False, True, True, "jobwell@mail.example")),
        ("smtp://jobs:secret@mail.example:2525?starttls=0", ("mail.example", 2525, "jobs", False, False, True, "jobwell@mail.example")),
        ("smtp://mail.example?starttls=1&verify=0", ("mail.example", 25, "", False, True, False, "jobwell@mail.example")),
        ("smtps://jobs%40corp.example:p%40ss@mail.example", ("mail.example", 465, "jobs@corp.example", True, False, True, "jobs@corp.example")),
        ("smtps://mail.example?from=a+b@corp.example", ("mail.example", 465, "", True, False, True, "a+b@corp.example")),
    ],
)  # fmt: skip
def test_a_url_is_read(url: str, expected: tuple[object, ...]) -> None:
    found = read(url)
    assert (found.host, found.port, found.user, found.tls, found.starttls, found.verify, found.sender) == expected
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    "url",
    [
        "mail.example", "http://mail.example", "smtp://", "smtp://u:SECRET@mail.example:x", "smtp://u:SECRET@mail.example/path", "smtp://u:SEC/RET@mail.example",
        "smtp://u:SECRET@mail.example?colour=red", "smtp://mail.example?starttls=yes", "smtps://mail.example?starttls=1", "smtp://u:SECRET@mail.example#x",
        "smtp://mail.example?from=a%0d%0ab@c.example", "smtp://u:SECRET?@mail.example", "smtp://u:?SECRET@mail.example?from=a@b.example", "u:SECRET@mail.example",
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_without_the_password(url: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read(url)
    assert "SECRET" not in str(raised.value)
    assert "SEC/RET" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("", ""), ("smtp://mail.example:25?starttls=1", "smtp://mail.example:25?starttls=1"),
        ("smtp://jobs:secret@mail.example?from=a@b.example", "smtp://jobs:***@mail.example?from=a@b.example"),
        ("smtp://jobs@mail.example", "smtp://jobs@mail.example"),
    ],
)  # fmt: skip
def test_it_is_shown_masked(url: str, shown: str) -> None:
    assert masked(url) == shown


@given(
    st.text("SECRT@:/?#&=%.-", min_size=1),
    st.sampled_from(["smtp", "smtps"]),
    st.sampled_from(["", "?from=a@b.example", "?starttls=1"]),
)
def test_whatever_a_password_is_it_is_not_shown(password: str, scheme: str, options: str) -> None:
    url = f"{scheme}://jobs:{password}SECRET@mail.example{options}"
    assert "SECRET" not in masked(url)
    try:
        read(url)
    except SettingsError as error:
        assert "SECRET" not in str(error)
