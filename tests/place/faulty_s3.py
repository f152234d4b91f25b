"""An S3 server on loopback that fails: moto, with faults in front of it.

Kinds of faults: `error` (500 before the request is done), `lost` (500 after it was done), `cut`
(the connection breaks instead of an answer), `late` (the answer comes after the client gave up).
A test may ask for `forgotten` as well: the answer of a server that no longer knows an upload; for
`refused`: that of one whose credentials have changed; and for `vanished`: that of no bucket.
`python -m tests.place.faulty_s3 PORT SHARE LATE_S` serves until it is killed.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

REPORT = "/-faults"
KINDS = ("error", "lost", "cut", "late")
_WEIGHTS = (4, 3, 3, 0)
_BODY = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>InternalError</Code>'
    b"<Message>We encountered an internal error. Please try again.</Message></Error>"
)
_ANSWERS = {
    "refused": (
        "403 Forbidden",
        b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>ExpiredToken</Code>'
        b"<Message>The provided token has expired.</Message></Error>",
    ),
    "vanished": (
        "404 Not Found",
        b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>NoSuchBucket</Code>'
        b"<Message>The specified bucket does not exist</Message></Error>",
    ),
}
_FORGOTTEN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>NoSuchUpload</Code>'
    b"<Message>The specified upload does not exist.</Message></Error>"
)


class Faulty:
    """A WSGI application in front of another one; the share `share` of its requests fails.

    `late_s`: seconds that a late answer takes; 0: there are none.
    """

    def __init__(self, app: Any, share: float = 0.0, seed: int = 0, late_s: float = 0.0) -> None:
        self.share = share
        self.late_s = late_s
        self.counts: Counter[str] = Counter()
        self.fails: Callable[[str, str], str] | None = None
        self._app = app
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == REPORT:
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(self.counts).encode()]
        kind = self._kind(environ["REQUEST_METHOD"], path)
        if kind == "error":
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return _failed(environ, start)
        if kind == "forgotten":
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start("404 Not Found", [("Content-Type", "application/xml")])
            return [_FORGOTTEN]
        if kind in _ANSWERS:
            status, body = _ANSWERS[kind]
            start(status, [("Content-Type", "application/xml")])
            return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]
        if kind == "late":
            time.sleep(self.late_s)
        answer = self._app(environ, start if kind not in ("lost", "cut") else _ignore)
        if kind == "lost":
            b"".join(answer)
            return _failed(environ, start)
        if kind == "cut":
            b"".join(answer)
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            start("200 OK", [("Content-Length", "10")])
            return [b"half"]
        return answer

    def _kind(self, method: str, path: str) -> str:
        """Return the fault of a request, '' for none, and count it."""
        with self._lock:
            self.counts["requests"] += 1
            kind = self.fails(method, path) if self.fails else ""
            if self._random.random() < self.share:
                weights = (*_WEIGHTS[:3], 1 if self.late_s else 0)
                kind = self._random.choices(KINDS, weights)[0]
            self.counts[kind] += bool(kind)
            return kind


def _failed(environ: WSGIEnvironment, start: StartResponse) -> list[bytes]:
    start(
        "500 Internal Server Error",
        [("Content-Type", "application/xml"), ("Content-Length", str(len(_BODY)))],
    )
    return [b"" if environ["REQUEST_METHOD"] == "HEAD" else _BODY]


def _ignore(status: str, headers: Any, exc_info: Any = None) -> Callable[[bytes], object]:
    return lambda data: None


@contextmanager
def serving(port: int = 0, **options: Any) -> Iterator[tuple[Faulty, str]]:
    """Serve S3 on loopback; yield the faults and the address of the server."""
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    faulty = Faulty(DomainDispatcherApplication(create_backend_app), **options)
    server = make_server("127.0.0.1", port, faulty, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield faulty, f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    with serving(int(sys.argv[1]), late_s=float(sys.argv[3])) as (faults, _):
        time.sleep(5)  # the bucket is made without faults
        faults.share = float(sys.argv[2])
        threading.Event().wait()
