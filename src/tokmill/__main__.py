"""The `tokmill` command, and `python -m tokmill`: signals first, then all that takes time."""


def main() -> None:
    """Run the command line; Ctrl-C while it is imported is no traceback either."""
    import signal

    # Until the handlers stand, Ctrl-C ends the process by its signal, which shells show as 130.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tokmill.interrupts import answer_signals, leave

    answer_signals()
    try:
        from tokmill.no_pandas import skip_pandas

        skip_pandas()
        from tokmill.cli.main import main as run
    except KeyboardInterrupt:
        leave()
    try:
        run()
    finally:
        import gc

        gc.freeze()  # at its end Python collects three times: 60 to 100 ms for what is loaded


if __name__ == "__main__":
    main()
