"""Records with images, videos or audio: their text alone is not what a reply was written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.keys import MEDIA_KEYS, is_filled
from tokmill.chat.values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

_MEDIA = frozenset(MEDIA_KEYS)


def check_media(item: Mapping[str, Any], where: str) -> None:
    """Refuse what comes with images, videos or audio: its text alone would be trained wrongly.

    Raises:
        ChatError: "images", "videos" or "audios".
    """
    if _MEDIA.isdisjoint(item):
        return
    for key in MEDIA_KEYS:
        if is_filled(item.get(key)):
            raise ChatError(
                f"{key.removesuffix('s')}s",
                f"{where}: expected text alone, found {key}, {shown(item[key])}: "
                f"--ignore-keys {key} trains on the text as it stands",
            )
