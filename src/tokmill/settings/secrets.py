"""Secrets in URLs: paths are written to plans, manifests and messages, so none may hold one."""

from __future__ import annotations

import re
from urllib.parse import unquote

from tokmill.errors import UsageError

_SCHEME = r"[a-z][a-z0-9+.-]+"
_URL = re.compile(rf"(?:(?:^|::)(?P<path>{_SCHEME}):/(?!/)|(?P<url>{_SCHEME})://)", re.IGNORECASE)
"""The beginning of a URL, also inside a chain such as `zip://a.csv::s3://bucket/b.zip`.

A `Path` made of `s3://bucket/name` is `s3:/bucket/name`.
"""

_PLACE = re.compile(rf"(?:{_SCHEME}::)*{_SCHEME}:/", re.IGNORECASE)

_FIRST = re.compile(rf"/|::(?={_SCHEME}:/)", re.IGNORECASE)
"""The end of the first component of a URL."""

_IPV6 = re.compile(r"^\[[0-9a-f:.%]*\]", re.IGNORECASE)
_PORT = re.compile(r"[0-9]{1,5}")
_ARN = re.compile(r"arn:aws[a-z-]*:s3[a-z-]*:[a-z0-9-]*:[0-9]*:[a-z]+(:[a-z0-9-]+)?")

_LOCAL = {"file", "local"}
_NO_PORTS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "hf", "oss"}
"""Schemes whose first component is no host: a colon in it is one of a password."""
_NAMES_WITH_AT = {"hf", "az", "abfs", "abfss", "wasb", "wasbs", "oci"}
"""Schemes whose names have an @ of their own: hf://model@main, abfs://container@account."""

_KEY = re.compile(r"[?&;#]([^=?&;#/]*)=")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS = {
    "auth", "authentication", "authorization", "bearer", "code", "cookie", "cred", "creds",
    "delegation", "hmac", "jwt", "key", "keys", "oauth", "otp", "pass", "passcode", "passphrase",
    "passwd", "pw", "pwd", "sas", "sid", "sig", "ticket",
}  # fmt: skip
_SECRET_BEGINNINGS = ("access", "credential", "password", "private", "secret", "session")
_SECRET_ENDINGS = (
    "accesskey", "apikey", "authkey", "keyid", "passwd", "password", "secret", "secretkey", "sig",
    "signature", "signatures", "token", "tokens",
)  # fmt: skip


def refuse_secrets(text: str, where: str = "") -> None:
    """Refuse a URL with a user, a password or a signed query; the message does not repeat it.

    A text that only has a URL in it, such as a template, is no place of a file.

    Raises:
        UsageError: the text is such a URL.
    """
    if _PLACE.match(text) and (_user(text) or _secret_query(text) is not None):
        begin = f"{where}: " if where else ""
        raise UsageError(
            f"{begin}expected a URL without a user, a password, a signature or a key in its "
            "query, since it would be written to the dataset; found one with: give it through the "
            "environment or the settings file of the store"
        )


def without_secrets(text: str) -> str:
    """Return a URL without user, password and query; another text as it is.

    Example:
        >>> without_secrets("s3://me:a/b@bucket/name?versionId=1")
        's3://bucket/name'
    """
    first = _URL.search(text)
    if first is None:
        return text
    while found := _user(text):
        text = text[: found[0]] + text[found[1] :]
    text = text[: first.end()] + text[first.end() :].partition("?")[0]
    return text[: _secret_query(text)]


def _user(text: str) -> tuple[int, int] | None:
    """Return where what may be a user and a password begins and ends; None without one."""
    start = 0
    while found := _URL.search(text, start):
        start = found.end()
        scheme = (found["url"] or found["path"]).lower()
        while scheme not in _LOCAL and text[start : start + 1] == "/":
            start += 1
        if n := _user_length(scheme, text[start:]):
            return start, start + n
    return None


def _user_length(scheme: str, rest: str) -> int:
    """Return how many characters of a URL, after its `://`, may be a user and a password.

    A key of AWS has slashes, so a password ends at the last @ of all.
    """
    first = _FIRST.split(rest, maxsplit=1)[0]
    _, colon, port = _IPV6.sub("", first, count=1).partition(":")
    is_port = scheme not in _NO_PORTS and _PORT.fullmatch(port)
    if colon and not is_port and not (_ARN.fullmatch(first) and scheme in ("s3", "s3a")):
        return rest.rfind("@") + 1
    return 0 if scheme in _NAMES_WITH_AT else first.rfind("@") + 1


def _secret_query(text: str) -> int | None:
    """Return where a query begins whose key may name a secret; None without one."""
    first = _URL.search(text)
    for found in _KEY.finditer(text, first.end()) if first else ():
        if _is_secret(unquote(found[1])):
            return found.start()
    return None


def _is_secret(key: str) -> bool:
    words = [word.lower() for word in _WORD.findall(key)]
    return any(
        word in _SECRET_WORDS
        or word.startswith(_SECRET_BEGINNINGS)
        or word.endswith(_SECRET_ENDINGS)
        for word in words
    )
