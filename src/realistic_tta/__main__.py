"""`python -m realistic_tta` is `rtta`."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
