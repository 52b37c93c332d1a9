"""Plain data as the text that the database holds; `core.codec.plain_from` reads it again."""

from __future__ import annotations

import json
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()


def to_text(plain: Any) -> str:
    """Return plain data, or a value of the domain, as JSON text.

    A lone surrogate (the name of a file that is no UTF-8 gives one) is no text to the fast encoder, nor to
    the database; escaped it is.
    """
    try:
        return _encoder.encode(plain).decode()
    except UnicodeEncodeError:
        return json.dumps(
            msgspec.to_builtins(plain), ensure_ascii=True, allow_nan=False, separators=(",", ":")
        )
