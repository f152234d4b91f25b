"""URLs of object stores: recognise them, and show them without secrets."""

from __future__ import annotations

import re
from pathlib import PurePath

from tokmill.errors import UsageError
from tokmill.settings.secrets import without_secrets

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://?(?P<rest>[^/].*|/.+)", re.DOTALL)


def is_store(place: str) -> bool:
    """Return whether an output is a place in an object store, such as `s3://bucket/name`."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", place) is not None


def store_url(place: str | PurePath) -> str:
    """Return the URL that a path once was; '' for a path of this machine.

    A `Path` made of `s3://bucket/name` is `s3:/bucket/name`.

    Example:
        >>> store_url(PurePath("s3://bucket/name"))
        's3://bucket/name'
    """
    found = _URL.fullmatch(str(place))
    if found is None or not (isinstance(place, PurePath) or is_store(place)):
        return ""
    scheme, rest = found["scheme"], found["rest"]
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
    scheme = r"[A-Za-z][A-Za-z0-9+.-]+"
    if not is_store(place) and re.match(rf"{scheme}:/[^/]|({scheme}::)+{scheme}://", place):
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


def shown(url: str) -> str:
    """Return a URL without user, password and query, which may be secrets."""
    return without_secrets(url)
