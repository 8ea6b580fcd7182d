"""`python -m promptmetric`."""

from promptmetric.cli import main

main()
