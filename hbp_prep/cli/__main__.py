"""``python -m hbp_prep.cli``."""

from hbp_prep.cli.main import main

main()
