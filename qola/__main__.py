"""``python -m qola``, and the program of //:qola."""

import os
import sys

if not __package__:
    # Started as a file: modules of this directory (inspect) would hide those of Python's library.
    _here = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.realpath(path) != _here]

from qola.cli import main

if __name__ == "__main__":
    sys.exit(main())
