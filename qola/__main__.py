"""``python -m qola``, and the program of //:qola."""

import os
import sys

if not __package__:
    # Started as a file: the modules beside it (inspect) would hide others of their names.
    _here = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.realpath(path) != _here]

from qola.cli import main

if __name__ == "__main__":
    sys.exit(main())
