"""The program of the bundle rules: makes bundles, and packs them and torch modules."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qola.bundle.archive import HOST, pack
from qola.bundle.build import BundleInputs, build
from qola.bundle.python_wheel import EPOCH, TorchWheel, write_torch_wheel, write_wheel
from qola_base.errors import QolaError
from qola_base.json_types import reader
from qola_base.system_errors import disk_error


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="qola.bundle", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    builder = commands.add_parser("build", help="make the directory of a bundle")
    builder.add_argument("--inputs", required=True, type=Path, help="JSON: see BundleInputs")
    builder.add_argument("--output", required=True, type=Path, help="directory to write to")
    archiver = commands.add_parser("archive", help="pack a directory as a tar file")
    archiver.add_argument("--prefix", required=True, help="the one directory in the tar file")
    wheel = commands.add_parser("wheel", help="pack a directory as a Python wheel")
    for packer in (archiver, wheel):
        packer.add_argument(
            "--part", default="", help=f"{HOST}, or an arch (default: the whole bundle)"
        )
        packer.add_argument("--directory", required=True, type=Path, help="directory to pack")
        packer.add_argument("--output", required=True, type=Path, help="file to write")
    torch = commands.add_parser("torch-wheel", help="pack torch modules as a wheel")
    torch.add_argument("--inputs", required=True, type=Path, help="JSON: see TorchWheel")
    torch.add_argument("--output", required=True, type=Path, help="file to write")
    wheel.add_argument(
        "--external-library",
        action="append",
        default=[],
        metavar="NAME",
        help="a library that users of the wheel install, such as libamdhip64.so.7; repeatable",
    )
    wheel.add_argument("--jax", type=Path, help="library of runtime/jax: add the module for JAX")
    args = parser.parse_args(argv)
    # The wheel library uses this time for RECORD.
    os.environ["SOURCE_DATE_EPOCH"] = str(EPOCH)
    try:
        if args.command == "archive":
            pack(args.directory, args.output, args.prefix, args.part)
        elif args.command == "torch-wheel":
            write_torch_wheel(_read(args.inputs, TorchWheel), args.output)
        elif args.command == "wheel":
            write_wheel(args.directory, args.output, args.external_library, args.part, args.jax)
        else:
            build(_read(args.inputs, BundleInputs), args.output)
    except (QolaError, OSError) as error:
        failure = error if isinstance(error, QolaError) else disk_error(error)
        print(failure, file=sys.stderr)
        return failure.exit_code
    return 0


def _read(inputs: Path, kind: Any) -> Any:
    return reader(kind)(json.loads(inputs.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
