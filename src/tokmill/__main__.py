"""The `tokmill` command, and `python -m tokmill`: signals first, then all that takes time.

No import stands here, not even of `__future__`: `python -m` would find it in the current directory.
"""


def main() -> None:
    """Run the command line; Ctrl-C while it is imported is no traceback either."""
    import signal

    # Until the handlers stand, Ctrl-C ends the process by its signal, which shells show as 130.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tokmill.interrupts import answer_signals, leave

    answer_signals()
    try:
        from tokmill.own_process import begin_process

        begin_process()
        from tokmill.cli.main import main as run
    except KeyboardInterrupt:
        leave()
    run()


def program() -> None:
    """Run the command line, and end the process at once."""
    try:
        main()
    except SystemExit as ending:
        if isinstance(ending.code, int):
            from tokmill.own_process import end_process

            end_process(ending.code)
        raise


def _forget_current_directory() -> None:
    """Remove the current directory from where modules are found: `python -m` puts it first.

    Data of strangers may lie there, and a file `numpy.py` among it would be run. A module that the
    user names is still found there, behind all that is installed: see `extensions.find_path`.
    """
    import os
    import sys

    try:
        here = os.getcwd()  # noqa: PTH109  pathlib could be a file of the current directory
    except FileNotFoundError:  # then Python has not put it there
        return
    if sys.path[:1] in ([here], [""]):
        del sys.path[0]


if __name__ == "__main__":
    _forget_current_directory()
    program()
