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


async def _send(postman: Postman, number: int, recipient: str) -> int:
    message = letter(Addressee("Dana Kim", recipient, "Buyer"), number, "2026-01-28", "Procurement", f"k{number}")
    for _ in range(2):
        try:
            await postman.send(recipient, message)
        except aiosmtplib.SMTPException as error:
            answer = mail.code(error)
        else:
            return 250
    return answer


def test_many_letters_share_a_few_connections(tmp_path: Path) -> None:
    async def many(port: int) -> list[int]:
        postman = Postman("127.0.0.1", port, connections=4)
        addresses = [f"u{number}@corp.example" if number % 10 else f"former.u{number}@corp.example" for number in range(200)]
        return await asyncio.gather(*(_send(postman, number, address) for number, address in enumerate(addresses)))

    with sink(tmp_path) as address:
        answers = asyncio.run(many(int(address.rpartition(":")[2])))
        tally = Tally()
        for entry in Reader(tmp_path / "mailbox").new():
            tally.add(entry)
    assert answers.count(250) == tally.counts["delivered"] == 180
    assert answers.count(550) == 20
    assert tally.duplicates == tally.counts["repeated"] == 0


def test_a_server_that_is_gone_is_an_error_that_can_be_tried_again(tmp_path: Path) -> None:
    with sink(tmp_path) as address:
        port = int(address.rpartition(":")[2])
    with pytest.raises(ConnectionError):
        asyncio.run(Postman("127.0.0.1", port).send("u@corp.example", b"Subject: x\r\n\r\nx\r\n"))


def test_a_connection_that_was_lost_is_replaced(tmp_path: Path) -> None:
    async def twice(port: int) -> None:
        postman = Postman("127.0.0.1", port, connections=1)
        assert await _send(postman, 1, "a@corp.example") == 250
        for line in postman._free:
            line.close()
        assert await _send(postman, 2, "b@corp.example") == 250

    with sink(tmp_path) as address:
        asyncio.run(twice(int(address.rpartition(":")[2])))
