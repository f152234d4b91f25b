"""The `tokmill` command, and `python -m tokmill`: signals first, then all that takes time."""

from tokmill.interrupts import answer_signals, leave


def main() -> None:
    """Run the command line; Ctrl-C while it is imported is no traceback either."""
    answer_signals()
    try:
        from tokmill.cli.main import main as run
    except KeyboardInterrupt:
        leave()
    run()


if __name__ == "__main__":
    main()
