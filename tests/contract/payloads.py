"""JSON texts that somebody's database or client library would change, and texts that are no JSON at all."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from _pytest.mark import ParameterSet


def cases(texts: Mapping[str, str]) -> list[ParameterSet]:
    """The texts as parameters of a test, each known by its name."""
    return [pytest.param(text, id=name) for name, text in texts.items()]


VERBATIM = {
    "nul": '{"k": "a\\u0000b"}',
    "nul in a key": '{"\\u0000": 1}',
    "lone high surrogate": '{"k": "\\ud800"}',
    "lone low surrogate": '{"k": "\\udc00 x"}',
    "surrogates the wrong way round": '["\\udc0d\\ud83d"]',
    "escaped pair": '{"k": "\\ud83d\\udc0d"}',
    "10^30": '{"k": 1000000000000000000000000000000}',
    "2^63": '{"k": [9223372036854775807, 9223372036854775808, -9223372036854775809]}',
    "1e22": '{"k": 1e22}',
    "1E+400": '{"k": 1E+400}',
    "more digits than a double": '{"k": 0.1234567890123456789012345678901234567890}',
    "trailing zeros": '{"k": 1.000}',
    "negative zero": '{"k": [-0.0, -0, -0e0]}',
    "90 deep": "[" * 90 + "]" * 90,
    "90 deep in objects": '{"a":' * 90 + "1" + "}" * 90,
    "duplicate keys": '{"k": 1, "k": 2, "k": {"k": 3}}',
    "empty key": '{"": {"": ""}}',
    "key order": '{"z": 1, "a": 2, "aa": 3, "10": 4, "9": 5}',
    "white space": ' {\t"k" :\r\n[ 1 ,2 ] } \n',
    "non-ASCII": '{"ключ": "žluťoučký 漢字 🐍 \u2028 \u00a0 \ufeff"}',
    "not normalised": '{"e\u0301": "\u00e9"}',
    "escapes": '{"k": "\\"\\\\\\/\\b\\f\\n\\r\\t\\u001f\\u007f"}',
    "SQL": '{"k": "\'; DROP TABLE jobs; -- %s %% ? :x $1 {} \\\\"}',
    "dollar quotes": "{\"k\": \"$$ $body$ '' E'\\\\n'\"}",
    "200 KB": '{"k": "' + "x" * 200_000 + '"}',
    "a wide list": "[" + ",".join(["0"] * 10_000) + "]",
    "looks like a uuid": '{"k": "00000000-0000-0000-0000-00000000000A"}',
    "scalar null": "null",
    "scalar true": "true",
    "scalar number": "-1.5e-7",
    "scalar zero": "0",
    "scalar text": '"text"',
    "scalar empty text": '""',
    "scalar in white space": " 1 ",
}

BROKEN = {
    "nothing": "",
    "white space": "  \n",
    "a word": "hello",
    "capitals": "True",
    "unclosed object": '{"k": 1',
    "unclosed list": "[1, 2",
    "unclosed text": '"abc',
    "comma at the end of an object": '{"k": 1,}',
    "comma at the end of a list": "[1,]",
    "no comma": "[1 2]",
    "no colon": '{"k" 1}',
    "bare key": "{k: 1}",
    "number for a key": "{1: 1}",
    "single quotes": "{'k': 1}",
    "two values": "1 2",
    "text after the end": "{} x",
    "NaN": "NaN",
    "Infinity": '{"k": Infinity}',
    "-Infinity": "[-Infinity]",
    "leading zero": "[01]",
    "plus sign": "[+1]",
    "bare point": "[.5]",
    "point at the end": "[5.]",
    "hexadecimal": "[0x1F]",
    "a comment": "{} // done",
    "a block comment": "{/* k */}",
    "bad escape": '["\\x41"]',
    "short unicode escape": '["\\u12"]',
    "a line break in a text": '["a\nb"]',
    "a tab in a text": '["a\tb"]',
    "a form feed between": "[1,\f2]",
    "a no-break space between": "[1,\u00a02]",
    "a raw nul": '["a\x00b"]',
}
