"""``python -m qola.cli``, as TransformerEngine's CMake calls it."""

import sys

from qola.cli import main

if __name__ == "__main__":
    sys.exit(main())
