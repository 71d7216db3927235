"""A job's arguments to JSON and back, with nothing lost on the way.

``dumps`` writes only what JSON brings back unchanged and refuses the rest with its path (``args.user[2]``);
``codec`` finds, from a handler's annotation, how a value that JSON does not know (a datetime, a UUID, a
dataclass…) travels as one that it does. No error shows a value: arguments are the application's data.

Why it is safe: the text is plain ASCII (lone surrogates and NUL are escaped), so every database stores it
verbatim; values are matched by exact type, so nothing comes back as its base class; nesting is bounded by
what every database can parse, so a caller's cycle or a stranger's brackets cannot exhaust a stack.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, NoReturn, Union
from uuid import UUID

from pyjobs.errors import InvalidArguments

DEEPEST = 100
"""Levels of nesting: the least that all the databases parse."""

_HINT = "pass plain values (str, int, float, bool, None, list, dict), or the id of what is meant"


def dumps(value: Any, path: str = "args") -> str:
    """The value as compact ASCII JSON. Tuples become lists. Raises ``InvalidArguments`` naming the path of what
    would not come back the same: other types, NaN and infinities, keys that are not strings, cycles."""
    return _ENCODER.encode(_plain(value, path, ()))


def loads(text: str) -> Any:
    """The value of JSON text; ``InvalidArguments`` when it is none. Of duplicate keys the last one counts."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise InvalidArguments("the arguments are not JSON that can be read") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
_DECODER = json.JSONDecoder(parse_constant=_no_constant)


# Looked for before `_plain` is called: most arguments are of these, and a call for each is what writing them costs.
_AS_IT_IS = frozenset((str, bool, types.NoneType))


def _plain(value: Any, path: str, around: tuple[int, ...]) -> Any:
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is int:
        return _number(value, path)
    if kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise InvalidArguments(f"{path} is {value!r}, which JSON does not have", "pass a finite number or None")
        return value
    if kind is list or kind is tuple:
        inner = _enter(value, path, around)
        return [
            item if type(item) in _AS_IT_IS else _plain(item, f"{path}[{index}]", inner)
            for index, item in enumerate(value)
        ]
    if kind is dict:
        inner = _enter(value, path, around)
        return {
            _key(key, path): item if type(item) in _AS_IT_IS else _plain(item, f"{path}.{key}", inner)
            for key, item in value.items()
        }
    raise InvalidArguments(f"{path} is of type {kind.__qualname__}, which JSON would not bring back", _HINT)


def _number(value: int, path: str) -> int:
    # Python reads no more digits than this, so that nobody can make it compute for minutes. The cheap test comes first.
    digits = sys.get_int_max_str_digits()
    if digits and value.bit_length() > digits * 3 and abs(value) >= 10**digits:
        raise InvalidArguments(f"{path} has more digits than can be read back", "pass it as text, in base 16")
    return value


def _key(key: Any, path: str) -> str:
    if type(key) is not str:
        raise InvalidArguments(f"{path} has a key of type {type(key).__qualname__}", "JSON's keys are strings")
    return key


def _enter(value: Any, path: str, around: tuple[int, ...]) -> tuple[int, ...]:
    if id(value) in around:
        raise InvalidArguments(f"{path} contains itself", _HINT)
    if len(around) >= DEEPEST:
        raise InvalidArguments(f"{path[:60]}… is nested more than {DEEPEST} levels deep", _HINT)
    return (*around, id(value))


@dataclass(frozen=True, slots=True)
class Codec:
    """How one annotated value travels: ``encode`` to what ``dumps`` takes, ``decode`` back. Both are given the
    path for their error, ``InvalidArguments``."""

    encode: Callable[[Any, str], Any]
    decode: Callable[[Any, str], Any]


def codec(annotation: Any) -> Codec | None:
    """The codec an annotation asks for; None when the value travels as it is.

    Known: datetime, date, time, UUID, Decimal, enums (by their value), dataclasses, and lists, tuples of one
    type, dicts and optionals of these. A union of several is ambiguous on the way back, so it has no codec.
    """
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return _of_class(annotation)
    origin, parameters = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return codec(parameters[0])
    if origin is Union or origin is types.UnionType:
        return _optional(parameters)
    if origin in (list, Sequence) and len(parameters) == 1:
        return _sequence(parameters[0], list)
    if origin is tuple and len(parameters) == 2 and parameters[1] is Ellipsis:
        return _sequence(parameters[0], tuple)
    if origin in (dict, Mapping) and len(parameters) == 2 and parameters[0] is str:
        return _mapping(parameters[1])
    return None


def codecs_of(annotations: Mapping[str, Any]) -> dict[str, Codec]:
    """The codecs of those that need one, by name."""
    return {name: found for name, annotation in annotations.items() if (found := codec(annotation)) is not None}


def encode_all(values: Mapping[str, Any], codecs: Mapping[str, Codec], path: str) -> dict[str, Any]:
    """The named values, each as its codec sends it, in their order."""
    named = [(name, each) for name, each in codecs.items() if name in values]
    return {**values, **{name: each.encode(values[name], f"{path}.{name}") for name, each in named}}


def decode_all(values: Mapping[str, Any], codecs: Mapping[str, Codec], path: str) -> dict[str, Any]:
    """The named values, each as its codec brings it back, in their order."""
    named = [(name, each) for name, each in codecs.items() if name in values]
    return {**values, **{name: each.decode(values[name], f"{path}.{name}") for name, each in named}}


def _of_class(kind: type) -> Codec | None:
    if kind in _TEXT:
        return _scalar(kind, *_TEXT[kind])
    if issubclass(kind, Enum):
        return _scalar(kind, _enum_value, kind)
    if dataclasses.is_dataclass(kind):
        return _record(kind)
    return None


def _scalar(kind: type, write: Callable[[Any], Any], read: Callable[[Any], Any]) -> Codec:
    """A type that travels as one string or whole number. ``write`` and ``read`` raise ``ValueError``."""

    def decode(value: Any, path: str) -> Any:
        with suppress(Exception):  # an enum's _missing_ may raise anything, and UUID does so of a number
            if type(value) in (str, int):
                return read(value)
        raise _unfit(kind, path)

    def encode(value: Any, path: str) -> Any:
        if type(value) is not kind:
            decode(value, path)  # it may be in its travelling form already
            return value
        try:
            return write(value)
        except ValueError:
            raise _unfit(kind, path) from None

    return Codec(encode, decode)


def _enum_value(member: Enum) -> str | int:
    if type(member.value) is str or type(member.value) is int:
        return member.value
    raise ValueError


def _decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError
    return str(value)


def _decimal(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError from None
    _decimal_text(value)
    return value


_TEXT: Mapping[type, tuple[Callable[[Any], str], Callable[[Any], Any]]] = {
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    UUID: (str, UUID),
    Decimal: (_decimal_text, _decimal),
}


def _record(kind: type) -> Codec:
    # The fields are looked up when a value passes, not before: a dataclass may contain itself.
    def decode(value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise _unfit(kind, path)
        try:
            return kind(**decode_all(value, codecs_of(_fields(kind)), path))
        except (TypeError, ValueError):
            raise _unfit(kind, path) from None

    def encode(value: Any, path: str) -> Any:
        if type(value) is not kind:
            decode(value, path)
            return value
        fields = _fields(kind)
        return encode_all({name: getattr(value, name) for name in fields}, codecs_of(fields), path)

    return Codec(encode, decode)


def _fields(kind: Any) -> dict[str, Any]:
    """The annotations of what a dataclass is made from."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def _optional(parameters: tuple[Any, ...]) -> Codec | None:
    others = [each for each in parameters if each is not types.NoneType]
    inner = codec(others[0]) if len(others) == 1 else None
    if inner is None:
        return None
    return Codec(
        lambda value, path: None if value is None else inner.encode(value, path),
        lambda value, path: None if value is None else inner.decode(value, path),
    )


def _sequence(item: Any, container: type) -> Codec | None:
    inner = codec(item)
    if inner is None:
        return None

    def encode(value: Any, path: str) -> list[Any]:
        items = _of_type((list, tuple), value, path)
        return [inner.encode(each, f"{path}[{index}]") for index, each in enumerate(items)]

    def decode(value: Any, path: str) -> Any:
        items = _of_type((list,), value, path)
        return container(inner.decode(each, f"{path}[{index}]") for index, each in enumerate(items))

    return Codec(encode, decode)


def _mapping(item: Any) -> Codec | None:
    inner = codec(item)
    if inner is None:
        return None

    def encode(value: Any, path: str) -> dict[Any, Any]:
        return {key: inner.encode(each, f"{path}.{key}") for key, each in _of_type((dict,), value, path).items()}

    def decode(value: Any, path: str) -> dict[str, Any]:
        return {key: inner.decode(each, f"{path}.{key}") for key, each in _of_type((dict,), value, path).items()}

    return Codec(encode, decode)


def _of_type(kinds: tuple[type, ...], value: Any, path: str) -> Any:
    if type(value) not in kinds:
        raise _unfit(kinds[0], path)
    return value


def _unfit(kind: type, path: str) -> InvalidArguments:
    return InvalidArguments(
        f"{path} is not a {kind.__qualname__}", f"the handler's annotation says {kind.__qualname__}"
    )
