"""The data of the demo: the file is made by its script, and holds together."""

import subprocess
import sys
from pathlib import Path

import pytest

from jobwell.demo import people


def test_the_script_makes_the_file_anew_byte_for_byte(tmp_path: Path) -> None:
    again = tmp_path / "employees.csv"
    subprocess.run([sys.executable, "-m", "jobwell.demo.make_employees", str(again)], check=True)
    assert again.read_bytes() == people.source().read_bytes()


def test_there_are_8000_people_with_a_mailbox_of_their_own() -> None:
    everyone = people.read()
    assert len(everyone) == people.PEOPLE == 8000
    assert [person.employee_id for person in everyone] == list(range(1, 8001))
    assert len({person.email for person in everyone}) == 8000
    assert {person.event_version for person in everyone} == {"2026-01-28"}


def test_a_mail_server_refuses_about_one_and_a_half_percent() -> None:
    refused = [person.email for person in people.read() if people.refusal(person.email)]
    assert 0.012 < len(refused) / people.PEOPLE < 0.018
    assert any(address.endswith(people.REFUSED_DOMAIN) for address in refused)
    assert any(address.startswith(people.GONE_PREFIX) for address in refused)


def test_the_transfer_changes_everyone_and_most_managers() -> None:
    everyone = people.read()
    assert all((person.department, person.position) != (person.new_department, person.new_position) for person in everyone)
    assert sum(person.manager_id != person.new_manager_id for person in everyone) > 0.98 * len(everyone)


def test_managers_stand_above_their_people_so_that_any_beginning_is_whole() -> None:
    for person in people.read():
        assert (person.manager_id or 0) < person.employee_id
        assert (person.new_manager_id or 0) < person.employee_id


def test_some_names_are_written_as_in_the_passport() -> None:
    names = [person.name for person in people.read()]
    assert 0.05 < sum(not name.isascii() for name in names) / len(names) < 0.2


@pytest.mark.parametrize("limit", [1, 7, 8000, 9000])
def test_a_beginning_can_be_read(limit: int) -> None:
    assert len(people.read(limit)) == len(list(people.lines(limit))) - 1 == min(limit, 8000)


def test_the_second_file_corrects_exactly_the_refused_addresses() -> None:
    right = people.corrections()
    assert right.keys() == {person.employee_id for person in people.read() if people.refusal(person.email)}
    assert not [address for address in right.values() if people.refusal(address)]
    assert len({*right.values(), *(person.email for person in people.read())}) == people.PEOPLE + len(right)
