"""`python -m pcr_exp`: the same as `pcr-exp`."""

import sys

from pcr_exp.cli import main

if __name__ == "__main__":
    sys.exit(main())
