"""Strict base64url and JSON for signed data: each text has one meaning, and each meaning one text.

Two readers that disagree about a duplicate key or a sloppy encoding can be played off against each other. Both
functions raise ValueError without the text in it.
"""

import base64
import json
import re
from typing import Any, NoReturn

_ALPHABET = re.compile(r"[A-Za-z0-9_-]*")


def encode_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decode_base64url(text: str) -> bytes:
    """Refuses padding, other characters, and bits that decoding would drop."""
    if not _ALPHABET.fullmatch(text) or len(text) % 4 == 1:
        raise ValueError("not base64url without padding")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encode_base64url(data) != text:
        raise ValueError("not canonical base64url")
    return data


def decode_object(data: bytes) -> dict[str, Any]:
    """A JSON object without duplicate keys at any depth, NaN or infinities."""
    try:
        found = json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except _Doubled:
        raise ValueError("a key is there twice") from None
    except ValueError:
        raise ValueError("not JSON") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


class _Doubled(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Doubled
    return found


def _constant(text: str) -> NoReturn:
    raise ValueError
