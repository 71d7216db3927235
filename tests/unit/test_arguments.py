from __future__ import annotations

import json
from collections import OrderedDict, namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, Optional
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjobs.arguments import DEEPEST, codec, dumps, loads
from pyjobs.errors import InvalidArguments

SECRET = "hunter2"
AN_ID = UUID("0190a0b0-0000-7000-8000-000000000001")

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON))
def test_what_json_knows_comes_back_the_same(value: dict[str, Any]) -> None:
    written = dumps(value)
    assert written.isascii()
    assert loads(written) == value
    assert repr(loads(written)) == repr(value)  # 1 stays apart from 1.0 and True


def test_the_text_is_compact_and_escapes_what_a_database_may_not_store() -> None:
    assert dumps({"a": [1, 1e22, None, True]}) == '{"a":[1,1e+22,null,true]}'
    assert dumps({"b": "\0\ud800é"}) == r'{"b":"\u0000\ud800\u00e9"}'


def test_an_int_of_any_readable_size_comes_back() -> None:
    value = {"n": 10**4000, "m": -(2**64)}
    assert loads(dumps(value)) == value


def test_tuples_become_lists() -> None:
    assert loads(dumps({"point": (1, (2, 3))})) == {"point": [1, [2, 3]]}


class Color(Enum):
    RED = "red"


class Strict(Enum):
    ONE = 1

    @classmethod
    def _missing_(cls, value: object) -> Strict:
        raise LookupError(value)


class Level(IntEnum):
    LOW = 1


class Text(str):
    pass


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        b"bytes",
        {1, 2},
        frozenset(),
        object(),
        datetime.now(UTC),
        date(2026, 1, 1),
        timedelta(1),
        AN_ID,
        Decimal("1.5"),
        Color.RED,
        Level.LOW,
        Text("a"),
        Point(1, 2),
        OrderedDict(a=1),
        1j,
        range(3),
        len,
        Exception("x"),
        10**5000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_not_come_back_is_refused_with_its_path(value: Any) -> None:
    with pytest.raises(InvalidArguments, match=r"^args\.user\[2\]\.key ") as refusal:
        dumps({"user": [0, 1, {"key": value}]})
    assert refusal.value.hint


@pytest.mark.parametrize("key", [1, None, 1.5, True, (1,), Text("a")])
def test_a_key_that_is_not_a_string_is_refused(key: Any) -> None:
    with pytest.raises(InvalidArguments, match=r"args\.map has a key of type"):
        dumps({"map": {key: 1}})


def test_a_cycle_is_refused_with_its_path() -> None:
    inner: dict[str, Any] = {}
    inner["self"] = [inner]
    with pytest.raises(InvalidArguments, match=r"^args\.a\.self\[0\] contains itself"):
        dumps({"a": inner})


def test_the_same_object_twice_is_no_cycle() -> None:
    shared = [1]
    assert loads(dumps({"a": shared, "b": [shared, shared]})) == {"a": [1], "b": [[1], [1]]}


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_nesting_is_bounded() -> None:
    assert loads(dumps(nested(DEEPEST))) == nested(DEEPEST)
    for levels in (DEEPEST + 1, 100_000):
        with pytest.raises(InvalidArguments, match="nested more than"):
            dumps(nested(levels))


@pytest.mark.parametrize(
    "text", ["", "{", "{'a': 1}", "NaN", '{"a": Infinity}', "[" * 200_000, "1" * 5_000, "\ufeff{}"], ids=len
)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidArguments) as refusal:
        loads(text)
    assert len(str(refusal.value)) < 100


def test_no_refusal_shows_a_value() -> None:
    for attempt in (
        lambda: dumps({"password": SECRET.encode()}),
        lambda: dumps({"password": {SECRET}}),
        lambda: loads('{"password": "' + SECRET),
        lambda: roundtrip(datetime, SECRET),
        lambda: roundtrip(UUID, SECRET),
        lambda: roundtrip(Color, SECRET),
        lambda: roundtrip(Decimal, SECRET),
    ):
        with pytest.raises(InvalidArguments) as refusal:
            attempt()
        assert SECRET not in refusal.value.message + refusal.value.hint
        assert refusal.value.__cause__ is None


@dataclass
class Line:
    article: UUID
    price: Decimal
    note: str | None = None


@dataclass(frozen=True)
class Order:
    placed: datetime
    lines: list[Line]
    parent: Order | None = None
    total: Decimal = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", sum((line.price for line in self.lines), Decimal()))


def roundtrip(annotation: Any, value: Any) -> Any:
    """A value's whole way: encoded, through JSON text, decoded."""
    way = codec(annotation)
    assert way is not None
    return way.decode(loads(dumps(way.encode(value, "args.it"), "args.it")), "args.it")


PARIS_SUMMER = timezone(timedelta(hours=2))
ORDER = Order(datetime(2026, 1, 1, tzinfo=UTC), [Line(AN_ID, Decimal("1.10"))])


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (datetime, datetime(2026, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)),
        (datetime, datetime(2026, 7, 1, tzinfo=PARIS_SUMMER)),
        (datetime, datetime(2026, 1, 1)),
        (date, date(2026, 1, 31)),
        (time, time(12, 30)),
        (UUID, AN_ID),
        (Decimal, Decimal("1.10")),
        (Decimal, Decimal("1E+400")),
        (Color, Color.RED),
        (Level, Level.LOW),
        (datetime | None, None),
        (Optional[date], date(2026, 1, 31)),  # noqa: UP045
        (Annotated[UUID, "an id"], AN_ID),
        (list[UUID], [AN_ID, AN_ID]),
        (Sequence[date], [date(2026, 1, 31)]),
        (tuple[Decimal, ...], (Decimal("1"), Decimal("2.0"))),
        (dict[str, datetime], {"a": datetime(2026, 1, 1, tzinfo=UTC)}),
        (Mapping[str, list[Color]], {"a": [Color.RED]}),
        (Line, Line(AN_ID, Decimal("9.99"), "fragile")),
        (Order, Order(datetime(2026, 1, 2, tzinfo=UTC), [Line(AN_ID, Decimal("2"))], ORDER)),
        (list[Order | None], [None, ORDER]),
    ],
)
def test_an_annotated_value_makes_the_way_both_ways(annotation: Any, value: Any) -> None:
    back = roundtrip(annotation, value)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_a_value_in_its_travelling_form_is_sent_as_it_is() -> None:
    assert roundtrip(datetime, "2026-01-01T00:00:00+00:00") == datetime(2026, 1, 1, tzinfo=UTC)
    assert roundtrip(Color, "red") is Color.RED
    assert roundtrip(Line, {"article": str(AN_ID), "price": "1"}) == Line(AN_ID, Decimal(1))


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (datetime, "yesterday"),
        (datetime, 5),
        (datetime, date(2026, 1, 1)),
        (date, datetime(2026, 1, 1)),
        (UUID, "not-one"),
        (UUID, 5),
        (Strict, 2),
        (Decimal, Decimal("nan")),
        (Decimal, Decimal("snan")),
        (Decimal, Decimal("inf")),
        (Decimal, "nan"),
        (Color, "blue"),
        (Color, ["red"]),
        (Level, True),
        (Level, 1.0),
        (list[UUID], str(AN_ID)),
        (dict[str, date], [1]),
        (Line, {"article": str(AN_ID)}),
        (Line, {"article": str(AN_ID), "price": "1", "surprise": 1}),
        (Line, []),
    ],
)
def test_a_value_of_another_type_is_refused(annotation: Any, value: Any) -> None:
    with pytest.raises(InvalidArguments, match=r"^args\.it"):
        roundtrip(annotation, value)


@pytest.mark.parametrize(
    "annotation",
    [int, str, Any, None, list, dict, dict[str, Any], list[int], Literal["a"], datetime | str, UUID | date, "unknown"],
)
def test_a_plain_or_ambiguous_annotation_has_no_codec(annotation: Any) -> None:
    assert codec(annotation) is None


def test_a_path_into_a_collection_names_the_item() -> None:
    with pytest.raises(InvalidArguments, match=r"^args\.it\[1\]\.price is not a Decimal"):
        roundtrip(list[Line], [Line(AN_ID, Decimal(1)), Line(AN_ID, Decimal("nan"))])


def test_duplicate_keys_count_by_the_last() -> None:
    assert loads('{"a": 1, "a": 2}') == {"a": 2}
    assert json.loads('{"a": 1, "a": 2}') == {"a": 2}
