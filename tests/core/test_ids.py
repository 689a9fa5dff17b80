"""Ids sort by time; a gate is the same number everywhere and for ever."""

from hypothesis import given
from hypothesis import strategies as st

from jobwell.core.ids import gate_of, new_id


def test_ids_are_version_7_and_sort_in_the_order_they_were_made() -> None:
    ids = [new_id() for _ in range(5000)]
    assert {id_.version for id_ in ids} == {7}
    assert sorted(ids) == ids
    assert len(set(ids)) == len(ids)


def test_gates_never_change_since_stored_jobs_carry_them() -> None:
    assert gate_of("shop.tasks.notify") == -6980902551224239517
    assert gate_of("shop.tasks.notify", ["smtp", "crm-api"]) == -6047710509144706823


@given(st.text(), st.lists(st.text(), unique=True), st.randoms())
def test_a_gate_is_a_signed_64_bit_number_whatever_the_order_of_resources(
    task: str, resources: list[str], random: "object"
) -> None:
    mixed = list(resources)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert gate_of(task, mixed) == gate_of(task, resources)
    assert -(2**63) <= gate_of(task, resources) < 2**63


def test_a_task_with_a_resource_is_another_gate() -> None:
    assert len({gate_of("a"), gate_of("a", ["b"]), gate_of("ab"), gate_of("a", ["b", "c"]), gate_of("a", ["bc"])}) == 5
