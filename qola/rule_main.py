"""The command lines of modules that repository rules run: how an error leaves them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from qola.errors import QolaError
from qola.files import system_error


def run_main(work: Callable[[], None]) -> int:
    """Do the work of a command line; return its exit code.

    An error a user can correct, a full disk or too little memory among them, is printed with the
    name of its class: by it, `qola build` tells from what Bazel prints whose fault it is.
    """
    try:
        try:
            work()
        except (OSError, MemoryError, RuntimeError) as error:
            if (told := system_error(error)) is None:
                raise
            raise told from None
    except QolaError as error:
        print(f"qola: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0
