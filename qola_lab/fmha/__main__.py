"""The program of `qola dispatch`: which kernels problems are launched with, without a device."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence

from qola_base.errors import ExitCode
from qola_lab.verify.libraries import add_libraries, places


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return the exit code."""
    parser = argparse.ArgumentParser(prog="qola dispatch", allow_abbrev=False)
    add_libraries(parser)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--problems")
    asked.add_argument("--places", action="store_true")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if args.places:
        # build_libraries runs this with a Python that may lack a NumPy it can load.
        print(json.dumps(dict(places(args))))
        return ExitCode.DONE
    return int(importlib.import_module("qola_lab.fmha.agreement").compare_all(args))


if __name__ == "__main__":
    sys.exit(main())
