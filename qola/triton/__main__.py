"""The tool of qola_triton_kernel: one compile, one code object and its metadata."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from qola.errors import Finding, QolaError
from qola.files import write_if_changed
from qola.rule_main import run_main
from qola.triton.compile import compile_instance
from qola.triton.kernel import Kernel, expand


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    return dict(text.split("=", 1) for text in texts)


def _work(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="qola.triton", description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--function", required=True)
    parser.add_argument("--name", required=True, help="of the kernel")
    parser.add_argument("--arch", required=True)
    parser.add_argument("--choice", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--type", action="append", default=[], metavar="PARAMETER=TYPE")
    parser.add_argument("--time-limit", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--metadata", type=Path, required=True)
    parser.add_argument("--text", type=Path)
    told = parser.parse_args(words)
    kernel = Kernel(
        name=told.name,
        source=str(told.source),
        text=told.source.read_text("utf-8"),
        function=told.function,
        choices={name: (value,) for name, value in _pairs(told.choice).items()},
        archs=(told.arch,),
        signature=_pairs(told.type),
    )
    (instance,) = expand(kernel)
    if (given := told.code.stem) != instance.name:
        # The rule names outputs by itself; `qola list` shows the names of qola.triton.kernel.
        raise QolaError(Finding(str(told.code), given, instance.name))
    made = compile_instance(instance, told.source, told.function, told.time_limit)
    write_if_changed(told.code, made.code)
    write_if_changed(told.metadata, made.metadata)
    if told.text:
        write_if_changed(told.text, made.text)


if __name__ == "__main__":
    sys.exit(run_main(lambda: _work(sys.argv[1:])))
