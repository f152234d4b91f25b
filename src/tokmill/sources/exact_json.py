"""JSON whose numbers keep every digit that the record has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Number(str):
    """A number of a record, as the record writes it: no digit is lost."""


def load_exact(
    text: bytes | str, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """Return the value of a JSON text, with a `Number` for each number; raises as `json.loads`."""
    return json.loads(
        text,
        parse_float=Number,
        parse_int=Number,
        parse_constant=Number,
        object_pairs_hook=object_pairs_hook,
    )
