"""Memory that is kept for another use, and gives way to what is charged."""

from functools import partial

import pytest

import tiga as tg
from tiga.errors import OutOfBudget
from tiga.runtime.tiers import Account


def test_idle_memory_gives_way() -> None:
    account, freed = Account("device", 100), list[str]()
    first = account.keep(40, partial(freed.append, "first"))
    account.keep(30, partial(freed.append, "second"))
    assert first
    assert account.idle == 70
    assert account.fits(100)
    ticket = account.charge(50, "an array")
    assert freed == ["second"]
    assert (account.live, account.idle, account.peak) == (50, 40, 90)
    account.release(ticket)
    account.drop(first)
    assert (account.live, account.idle) == (0, 0)


def test_what_is_worth_more_stays_longer() -> None:
    account, freed = Account("device", 100), list[str]()
    account.keep(40, partial(freed.append, "arenas"), worth=1)
    account.keep(40, partial(freed.append, "page"))
    account.keep(20, partial(freed.append, "last page"))
    account.charge(30, "an array")
    assert freed == ["last page", "page"]
    account.charge(70, "another")
    assert freed == ["last page", "page", "arenas"]


def test_what_has_no_room_is_not_kept() -> None:
    account = Account("device", 100)
    account.charge(60, "an array")
    assert account.keep(50, pytest.fail) == 0
    assert account.keep(40, pytest.fail)
    assert account.keep(1, pytest.fail) == 0
    assert account.peak == 100


def test_what_does_not_fit_takes_nothing_away() -> None:
    account = Account("device", 100)
    account.charge(60, "an array")
    account.keep(40, pytest.fail)
    with pytest.raises(OutOfBudget, match="60 of 100"):
        account.charge(41, "another")
    assert account.idle == 40


def test_a_scope_ends_with_nothing_kept() -> None:
    freed: list[str] = []
    with tg.execution(memory={"device": 100}) as run:
        run._scope.accounts["device"].keep(40, partial(freed.append, "page"))
        assert run.memory_report()["idle_bytes"]["device"] == 40
    assert freed == ["page"]
    assert run.memory_report()["idle_bytes"]["device"] == 0
