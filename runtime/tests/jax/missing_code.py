"""Print the errors of attention calls: python -m runtime.tests.jax.missing_code SITE PACKAGE..."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax

from runtime.tests.jax.on_emulator import Device, random


def main() -> None:
    """Print the errors by package as JSON."""
    site, device = Path(sys.argv[1]), Device()
    errors = {}
    for package in sys.argv[2:]:
        ops = device.load_package(site, package)
        try:
            ops.attention(*[random(1, 32, 1, 32)] * 3).block_until_ready()
        except jax.errors.JaxRuntimeError as error:
            errors[package] = str(error)
    print(json.dumps([errors, len(device.launches)]))


if __name__ == "__main__":
    main()
