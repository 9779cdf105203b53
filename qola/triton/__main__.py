"""Compiles one kernel instance for qola_triton_kernel: a code object and its metadata."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from qola.files import write_if_changed
from qola.rule_main import run_main
from qola.triton.compile import compile_instance
from qola.triton.kernel import Kernel, expand


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    return dict(text.split("=", 1) for text in texts)


def _compile(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="qola.triton", description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--function", required=True)
    parser.add_argument("--name", required=True, help="of the kernel instance")
    parser.add_argument("--arch", required=True)
    parser.add_argument("--choice", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--type", action="append", default=[], metavar="PARAMETER=TYPE")
    parser.add_argument("--timeout", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--metadata", type=Path, required=True)
    parser.add_argument("--text", type=Path)
    args = parser.parse_args(arguments)
    kernel = Kernel(
        name=args.function,
        source=str(args.source),
        text=args.source.read_text("utf-8"),
        function=args.function,
        choices={name: (value,) for name, value in _pairs(args.choice).items()},
        archs=(args.arch,),
        signature=_pairs(args.type),
    )
    (instance,) = expand(kernel)
    instance = replace(instance, name=args.name)
    compiled = compile_instance(instance, args.source, args.function, args.timeout)
    write_if_changed(args.code, compiled.code)
    write_if_changed(args.metadata, compiled.metadata)
    if args.text:
        write_if_changed(args.text, compiled.text)


if __name__ == "__main__":
    sys.exit(run_main(lambda: _compile(sys.argv[1:])))
