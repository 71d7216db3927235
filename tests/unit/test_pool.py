from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from pyjobs.errors import StoreUnavailable
from pyjobs.pool import StorePool


class Connection:
    """Stands for a store: the pool only hands it out and closes it."""

    closed = False

    def close(self) -> None:
        self.closed = True


class Made(list[Any]):
    def __call__(self) -> Any:
        self.append(Connection())
        return self[-1]


def test_one_after_another_share_a_store() -> None:
    made = Made()
    pool = StorePool(made, 3)
    for _ in range(5):
        with pool.store() as store:
            assert store is made[0]
    assert len(made) == 1


def test_at_the_same_time_each_has_its_own() -> None:
    made = Made()
    pool = StorePool(made, 2)
    with pool.store() as one, pool.store() as other:
        assert one is not other
    with pool.store() as again:
        assert again in made
    assert len(made) == 2


def test_no_more_than_its_size_are_out_and_the_next_waits_its_turn() -> None:
    made, answers = Made(), []
    pool = StorePool(made, 1)
    with pool.store():
        waiting = threading.Thread(target=lambda: answers.append(pool.store().__enter__()))
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
    waiting.join(10)
    assert answers == made
    assert len(made) == 1


def test_who_waits_too_long_is_told() -> None:
    pool = StorePool(Made(), 1, patience_seconds=0.01)
    with pool.store(), pytest.raises(StoreUnavailable, match="1 connections were busy"), pool.store():
        pytest.fail("there was a second store")


def test_a_store_comes_back_when_the_block_raises_and_when_none_could_be_made() -> None:
    def broken() -> Any:
        raise StoreUnavailable("no")

    pool = StorePool(Made(), 1, patience_seconds=0.01)
    for _ in range(3):
        with pytest.raises(KeyError), pool.store():
            raise KeyError
    pool = StorePool(broken, 1, patience_seconds=0.01)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="no"), pool.store():
            pytest.fail("there was a store")


def test_closing_closes_the_idle_ones_and_the_pool_goes_on() -> None:
    made = Made()
    pool = StorePool(made, 3)
    with pool.store(), pool.store():
        pass
    pool.close()
    assert [store.closed for store in made] == [True, True]
    with pool.store() as store:
        assert not store.closed
    assert len(made) == 3


def test_one_that_is_out_when_the_pool_is_closed_is_closed_when_it_comes_back() -> None:
    made = Made()
    pool = StorePool(made, 1)
    with pool.store() as out:
        pool.close()
        assert not out.closed
    assert out.closed
    with pool.store() as other:
        assert other is not out


def test_a_forked_child_makes_its_own_and_closes_none_of_the_parents() -> None:
    made = Made()
    pool = StorePool(made, 1)
    with pool.store() as parents:
        child = os.fork()
        if child == 0:
            with pool.store() as own:
                fine = own is not parents
            pool.close()
            os._exit(0 if fine and not parents.closed else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pool.store() as again:
        assert again is parents
