"""One timing, in a process of its own: `python -m bench.child TASK RESULT`.

Cold caches and fresh memory for everybody. The result is JSON: a timing, or why there is none.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bench.values import NotMeasured, Task

if TYPE_CHECKING:
    from bench.values import Peer

PEERS = {
    "tokmill": "bench.peers.tokmill_command",
    "engine": "bench.peers.engine",
    "reference": "bench.peers.reference",
    "datatrove": "bench.peers.datatrove_pipeline",
    "loop": "bench.peers.loop",
}


def load_peer(name: str) -> Peer:
    """Import the module of a peer; the packages that it needs come with its `run`."""
    return cast("Peer", importlib.import_module(PEERS[name]))


def _usage() -> dict[str, float]:
    """Return the CPU seconds of this process and its children, loading included, and its memory."""
    me, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    cpu_s = me.ru_utime + me.ru_stime + children.ru_utime + children.ru_stime
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "cpu_s": round(cpu_s, 2),
        "peak_rss_bytes": max(me.ru_maxrss, children.ru_maxrss) * unit,
    }


def main(task_file: str, result_file: str) -> None:
    """Run the task and write its result."""
    task = Task(**json.loads(Path(task_file).read_bytes()))
    try:
        result = asdict(load_peer(task.peer).run(task))
        result["notes"] |= _usage()
    except NotMeasured as reason:
        result = {"refused": str(reason)}
    Path(result_file).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
