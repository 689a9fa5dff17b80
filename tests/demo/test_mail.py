"""Sending from async code: few connections, many letters, and answers told apart."""

import asyncio
from pathlib import Path

import aiosmtplib
import pytest

from jobwell.demo import mail
from jobwell.demo.mail import Postman
from jobwell.demo.mailbox import Reader, Tally
from jobwell.demo.office import Addressee, letter
from jobwell.demo.processes import sink


async def _send(postman: Postman, number: int, recipient: str) -> mail.Answer:
    message = letter(Addressee("Dana Kim", recipient, "Buyer"), number, "2026-01-28", "Procurement", f"k{number}")
    found: mail.Answer | None = None
    for _ in range(2):  # the first try may be put off
        try:
            await postman.send(recipient, message)
        except aiosmtplib.SMTPException as error:
            found = mail.answer(error)
        else:
            return mail.Answer(250, "")
    assert found is not None
    return found


async def test_many_letters_share_a_few_connections(tmp_path: Path) -> None:
    addresses = [f"u{number}@corp.example" if number % 10 else f"former.u{number}@corp.example" for number in range(200)]
    with sink(tmp_path) as address:
        postman = Postman("127.0.0.1", int(address.rpartition(":")[2]), connections=4)
        answers = await asyncio.gather(*(_send(postman, number, address) for number, address in enumerate(addresses)))
        assert len(postman._free) <= 4
        postman.close()
        tally = Tally()
        for entry in Reader(tmp_path / "mailbox").new():
            tally.add(entry)
    assert answers.count(mail.Answer(250, "")) == tally.counts["delivered"] == 180
    assert max(map(str, answers)) == "550 5.1.1 no such mailbox: former.u90@corp.example"
    assert sum(answer.code == 550 for answer in answers) == 20
    assert tally.duplicates == tally.counts["repeated"] == 0


async def test_a_server_that_is_gone_is_an_error_that_can_be_tried_again(tmp_path: Path) -> None:
    with sink(tmp_path) as address:
        postman = Postman("127.0.0.1", int(address.rpartition(":")[2]))
    with pytest.raises(ConnectionError):
        await postman.send("u@corp.example", b"Subject: x\r\n\r\nx\r\n")


async def test_a_connection_that_was_lost_is_replaced(tmp_path: Path) -> None:
    with sink(tmp_path) as address:
        postman = Postman("127.0.0.1", int(address.rpartition(":")[2]), connections=1)
        assert (await _send(postman, 1, "a@corp.example")).code == 250
        for line in postman._free:
            line.close()
        assert (await _send(postman, 2, "b@corp.example")).code == 250
        postman.close()
