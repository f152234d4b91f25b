"""URLs of object stores: recognise them, and show and write them without secrets.

Paths are written to plans, manifests and messages, so none may hold a password or a signature.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from urllib.parse import unquote

from tokmill.errors import UsageError

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]+"
_URL = re.compile(rf"(?P<scheme>{_SCHEME})://?(?P<rest>[^/].*|/.+)", re.DOTALL)
_BEGINNING = re.compile(rf"(?:^|::)(?P<path>{_SCHEME}):/(?!/)|(?P<url>{_SCHEME})://")
"""The beginning of a URL, also inside a chain such as `zip://a.csv::s3://bucket/b.zip`.

A `Path` made of `s3://bucket/name` is `s3:/bucket/name`.
"""

_PLACE = re.compile(rf"(?:{_SCHEME}::)*{_SCHEME}:/")
_FIRST = re.compile(rf"/|::(?={_SCHEME}:/)")
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


def is_store(place: str) -> bool:
    """Return whether an output is a place in an object store, such as `s3://bucket/name`."""
    return re.match(rf"{_SCHEME}://", place) is not None


def store_url(place: str | PurePath) -> str:
    """Return the URL that a path once was; '' for a path of this machine.

    A `Path` made of `s3://bucket/name` is `s3:/bucket/name`.

    Example:
        >>> store_url(PurePath("s3://bucket/name"))
        's3://bucket/name'
    """
    match = _URL.fullmatch(str(place))
    if match is None or not (isinstance(place, PurePath) or is_store(place)):
        return ""
    scheme, rest = match["scheme"], match["rest"]
    return f"{scheme}://{'/' + rest.lstrip('/') if scheme in ('file', 'local') else rest}"


def shown_place(place: PurePath) -> str:
    """Return a directory or the URL that it once was, without secrets, for messages."""
    return shown(store_url(place)) if store_url(place) else str(place)


def local_path(place: str) -> str:
    """Return the path of a directory of this machine that a URL with file:// names, or `place`."""
    return re.sub(r"^(?:file|local)://", "", place, count=1, flags=re.IGNORECASE)


def check_output(place: str) -> None:
    """Check that an output is a directory, or the URL of a store that can be written to.

    Raises:
        UsageError: it is on a web server; or it looks like a URL with one slash, as a `Path` of a
            URL has, or like a chain of URLs.
    """
    if re.match("https?://", place, re.IGNORECASE):
        raise UsageError(
            f"{shown(place)}: a web server is only read from: choose a directory, or a store such "
            "as s3://bucket/name"
        )
    if not is_store(place) and re.match(rf"{_SCHEME}:/[^/]|({_SCHEME}::)+{_SCHEME}://", place):
        raise UsageError(
            f"{shown(place)}: expected a directory, or a URL such as s3://bucket/name as text (not "
            "as a Path); a directory of this name is given as ./ and its name"
        )


def refuse_store(directory: PurePath) -> None:
    """Raise `UsageError` for a place in a store, where only files of a disk can be mapped."""
    if url := store_url(directory):
        raise UsageError(
            f"{shown(url)}: documents are read from a disk: copy the dataset to one first, such as "
            "by `aws s3 sync` or `gcloud storage cp -r`, and name that directory"
        )


# Secrets


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


def shown(text: str) -> str:
    """Return a URL without user, password and query; another text as it is.

    Example:
        >>> shown("s3://me:a/b@bucket/name?versionId=1")
        's3://bucket/name'
    """
    first = _BEGINNING.search(text)
    if first is None:
        return text
    while user := _user(text):
        text = text[: user[0]] + text[user[1] :]
    text = text[: first.end()] + text[first.end() :].partition("?")[0]
    return text[: _secret_query(text)]


def _user(text: str) -> tuple[int, int] | None:
    """Return where what may be a user and a password begins and ends; None without one."""
    start = 0
    while match := _BEGINNING.search(text, start):
        start = match.end()
        scheme = (match["url"] or match["path"]).lower()
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
    first = _BEGINNING.search(text)
    for match in _KEY.finditer(text, first.end()) if first else ():
        if _is_secret(unquote(match[1])):
            return match.start()
    return None


def _is_secret(key: str) -> bool:
    words = [word.lower() for word in _WORD.findall(key)]
    return any(
        word in _SECRET_WORDS
        or word.startswith(_SECRET_BEGINNINGS)
        or word.endswith(_SECRET_ENDINGS)
        for word in words
    )
