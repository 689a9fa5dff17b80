"""The mail sink over real SMTP: it puts off, refuses, delivers once and recognises what it has seen."""

import smtplib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from jobwell.demo.mailbox import Reader, Tally
from jobwell.demo.office import Addressee, letter
from jobwell.demo.processes import sink
from jobwell.demo.sink import DEFERRED_SHARE, fraction

SENDER, DANA = "hr@corp.example", "dana.kim@corp.example"


def _key(*, deferred: bool) -> str:
    return next(key for key in map(str, count()) if (fraction(f"<{key}@jobwell.example>") < DEFERRED_SHARE) == deferred)


def _letter(key: str, employee: int = 7) -> bytes:
    return letter(Addressee("Дана Ким", DANA, "Buyer"), employee, "2026-01-28", "Procurement", key)


@contextmanager
def _line(address: str) -> Iterator[smtplib.SMTP]:
    host, _, port = address.partition(":")
    with smtplib.SMTP(host, int(port), timeout=10) as line:
        yield line


def _tally(folder: Path) -> Tally:
    tally = Tally()
    for entry in Reader(folder / "mailbox").new():
        tally.add(entry)
    return tally


def test_a_mail_is_delivered_once_and_its_repetition_only_counted(tmp_path: Path) -> None:
    key = _key(deferred=False)
    with sink(tmp_path) as address:
        for _ in range(3):
            with _line(address) as line:
                assert line.sendmail(SENDER, DANA, _letter(key)) == {}
        tally = _tally(tmp_path)
    assert tally.counts == {"delivered": 1, "repeated": 2}
    assert tally.mailboxes == {"7": {DANA}}
    assert tally.duplicates == 0


def test_a_first_try_that_is_put_off_is_accepted_the_second_time(tmp_path: Path) -> None:
    key = _key(deferred=True)
    with sink(tmp_path) as address, _line(address) as line:
        with pytest.raises(smtplib.SMTPDataError) as caught:
            line.sendmail(SENDER, DANA, _letter(key))
        assert caught.value.smtp_code == 451
        assert _tally(tmp_path).counts == {"deferred": 1}
        assert line.sendmail(SENDER, DANA, _letter(key)) == {}
        assert _tally(tmp_path).counts == {"deferred": 1, "delivered": 1}


@pytest.mark.parametrize("recipient", ["dana@refused.example", "former.dana@corp.example"])
def test_an_unknown_address_is_refused_and_the_line_goes_on(tmp_path: Path, recipient: str) -> None:
    with sink(tmp_path) as address, _line(address) as line:
        with pytest.raises(smtplib.SMTPRecipientsRefused) as caught:
            line.sendmail(SENDER, recipient, _letter(_key(deferred=False)))
        assert caught.value.recipients[recipient][0] == 550
        assert line.sendmail(SENDER, DANA, _letter(_key(deferred=False))) == {}
    tally = _tally(tmp_path)
    assert tally.counts == {"refused": 1, "delivered": 1}
    assert tally.refused == {recipient}


def test_the_same_news_under_two_ids_is_a_duplicate(tmp_path: Path) -> None:
    keys = [key for key in map(str, range(40)) if fraction(f"<{key}@jobwell.example>") >= DEFERRED_SHARE][:2]
    with sink(tmp_path) as address, _line(address) as line:
        for key in keys:
            line.sendmail(SENDER, DANA, _letter(key))
    assert _tally(tmp_path).duplicates == 1


def test_a_message_without_id_is_refused(tmp_path: Path) -> None:
    with sink(tmp_path) as address, _line(address) as line, pytest.raises(smtplib.SMTPDataError) as caught:
        line.sendmail(SENDER, DANA, b"Subject: hello\r\n\r\nhello\r\n")
    assert caught.value.smtp_code == 550


def test_a_new_process_remembers_what_the_last_one_accepted(tmp_path: Path) -> None:
    key = _key(deferred=False)
    for _ in range(2):
        with sink(tmp_path) as address, _line(address) as line:
            line.sendmail(SENDER, DANA, _letter(key))
        (tmp_path / "sink.port").unlink()
    assert _tally(tmp_path).counts == {"delivered": 1, "repeated": 1}


def test_a_reader_leaves_a_line_that_is_still_being_written(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    reader = Reader(tmp_path)
    assert list(reader.new()) == []
    journal.write_text('{"what":"refused"}\n{"what":"del', encoding="utf-8")
    assert list(reader.new()) == [{"what": "refused"}]
    journal.write_text('{"what":"refused"}\n{"what":"deferred"}\n', encoding="utf-8")
    assert list(reader.new()) == [{"what": "deferred"}]
