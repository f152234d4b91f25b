"""`python -m tokmill`."""

from tokmill.cli.main import main

main()
