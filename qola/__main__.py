"""``python -m qola``, and the program of //:qola."""

import sys

from qola.cli import main

if __name__ == "__main__":
    sys.exit(main())
