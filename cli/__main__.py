"""`python -m cli`: the same as `splitserve`."""

from cli.main import main

main()
