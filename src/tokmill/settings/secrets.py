"""Secrets in settings: paths are written to plans, manifests and messages, so none may hold one."""

from __future__ import annotations

import re

from tokmill.errors import UsageError

_USER = re.compile(r"[a-z][a-z0-9+.-]+:/{1,2}[^/?#\s]*@", re.IGNORECASE)
_SIGNED = re.compile(
    r"[a-z][a-z0-9+.-]+:/{1,2}[^\s]*[?&;]"
    r"[^=&\s]*(?:signature|sig|token|secret|credential|password|passwd|api[-_]?key|accesskeyid)=",
    re.IGNORECASE,
)


def refuse_secrets(text: str, where: str) -> None:
    """Refuse a URL with a user, a password or a signed query; the message does not repeat it.

    Raises:
        UsageError: the text is such a URL.
    """
    if _USER.match(text) or _SIGNED.match(text):
        raise UsageError(
            f"{where}: expected a URL without a user, a password or a signature, since it would be "
            "written to the dataset; found one with: give it through the environment or the "
            "settings file of the store"
        )
