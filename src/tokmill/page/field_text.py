"""Which fields of its records a run read and left out, as its manifest has them, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.fields import ENOUGH, describe_fields, noted_sources, percent, used_share

if TYPE_CHECKING:
    from collections.abc import Mapping


def fields_line(manifest: Mapping[str, Any]) -> str:
    """Return the fields that were read and left out, with the share of the text; '' for chats.

    Where less than 90 % of the text was read, in all or of a source, that comes first.
    """
    used, counts = manifest.get("fields_read"), manifest["totals"].get("fields")
    if not used or not counts:
        return ""
    share = used_share(counts, used)
    only = f"only {percent(share)} of the text is used: " if share < ENOUGH else ""
    few = noted_sources(manifest["sources"], used) if len(manifest["sources"]) > 1 else ""
    return f"{only}{describe_fields(counts, used)}" + (f"; used of the text: {few}" if few else "")
