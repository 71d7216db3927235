from __future__ import annotations

import time
from uuid import RFC_4122

from pyjobs.ids import new_id, new_ids


def test_an_id_is_a_uuid_of_version_7() -> None:
    before = time.time_ns() // 1_000_000
    id = new_id()
    after = time.time_ns() // 1_000_000
    assert (id.version, id.variant) == (7, RFC_4122)
    assert before <= id.int >> 80 <= after


def test_ids_sort_as_they_were_made() -> None:
    ids = [new_id() for _ in range(1_000)]
    assert ids == sorted(ids)


def test_ids_are_all_different() -> None:
    assert len({new_id() for _ in range(10_000)}) == 10_000


def test_many_at_once_sort_in_the_order_of_the_list() -> None:
    ids = new_ids(10_000)
    assert ids == sorted(set(ids))
    assert {(id.version, id.variant) for id in ids} == {(7, RFC_4122)}
