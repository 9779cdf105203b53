"""Compiles a kernel instance with Triton, without a GPU or ROCm, to reproducible bytes.

The compile runs in a process that is forked before Triton is imported. The process has its own
environment, because dozens of variables change Triton's output, and a temporary cache.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from qola.triton.kernel import Instance, Kernel, LaunchRecord, expand
from qola_base.errors import CodegenError, Finding
from qola_base.files import sha256_of_text, write_if_changed
from qola_base.rule_main import run_main

#: Triton's environment: no line numbers, which contain paths; only the installed backends, which
#: exclude other vendors' GPUs.
_ENVIRONMENT = {"TRITON_BACKENDS_IN_TREE": "1", "TRITON_DISABLE_LINE_INFO": "1"}
#: The keys of Triton's metadata that a launch needs.
_LAUNCH = (
    *("global_scratch_align", "global_scratch_size", "num_ctas", "num_warps"),
    *("profile_scratch_align", "profile_scratch_size", "shared", "warp_size"),
)


@dataclass(frozen=True)
class Compiled:
    """The code object (hsaco) of a compile, symbol, arguments and launch as JSON, and assembly."""

    code: bytes
    metadata: str
    text: str

    @cached_property
    def launch(self) -> LaunchRecord:
        """The parsed metadata."""
        found: LaunchRecord = json.loads(self.metadata)
        return found


def compile_instance(
    instance: Instance, source: Path, function: str, timeout: float = 0
) -> Compiled:
    """Compile a kernel within a timeout in seconds, 0 for none.

    Args:
        source: its Python file; it can import modules in the same directory.

    Raises:
        CodegenError: Triton rejects the kernel, is not installed, or exceeds the timeout.
    """
    with tempfile.TemporaryDirectory(prefix="qola-triton-") as scratch:
        # Forking is safe with one thread, and saves importing this package again.
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(
            target=_in_process, args=(sender, instance, source.absolute(), function, scratch)
        )
        process.start()
        sender.close()
        try:
            there = receiver.poll(timeout or None)
            result = receiver.recv() if there else f"not done after {timeout:g} seconds"
        except EOFError:
            process.join()
            result = f"the compiler ended with {process.exitcode}"
        finally:
            process.kill()
            process.join()
    if not isinstance(result, str):
        made = Compiled(*result)
        needed = made.launch["shared"]
        if needed <= instance.lds_limit:
            return made
        # Triton itself reports this only at a launch.
        result, fix = f"{needed} bytes of LDS", "smaller tiles, or fewer num_stages"
        expected = f"at most {instance.lds_limit} bytes on {instance.arch}"
    else:
        fix = "" if there else "raise timeout, or 0 for none"
        expected = f"a code object for {instance.arch}"
    place = f"{source}: {function}: {instance.choices_text()}"
    title = f"{instance.name} was not compiled"
    raise CodegenError(Finding(place, result, expected, fix), title)


def _in_process(
    sender: Connection, instance: Instance, source: Path, function: str, scratch: str
) -> None:
    """Send the output of a compile, or the text of its error."""
    places = {"HOME": scratch, "TMPDIR": scratch, "TRITON_CACHE_DIR": scratch}
    os.environ.clear()
    os.environ.update(_ENVIRONMENT | places | {"TRITON_HOME": scratch})
    tempfile.tempdir = scratch
    # At the end: a file may have the name of a module of Python or Triton.
    sys.path.append(str(source.parent))
    try:
        sender.send(_compile(instance, source, function))
    except BaseException as error:
        sender.send(_explain(error))


def _explain(error: BaseException) -> str:
    """Return the texts of an error and its causes: Triton chains one for each function call."""
    texts = []
    behind: BaseException | None = error
    while behind:
        last = [line for line in traceback.format_exception_only(behind) if line.strip()]
        texts.append("".join(last).strip() or repr(behind))
        behind = behind.__cause__
    return "\n".join(texts)


def _compile(instance: Instance, source: Path, function: str) -> tuple[bytes, str, str]:
    triton = importlib.import_module("triton")
    target = importlib.import_module("triton.backends.compiler").GPUTarget
    spec = importlib.util.spec_from_file_location(source.stem, source)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = getattr(module, function)
    at = {name: place for place, name in enumerate(kernel.arg_names)}
    constants = {
        param.name: param.default
        for param in kernel.params
        if param.is_constexpr and param.has_default
    } | {name: _value(text) for name, text in instance.constants.items()}
    arguments = {one.name: one.type for one in instance.arguments}
    made = triton.compile(
        triton.compiler.ASTSource(
            fn=kernel,
            signature={name: arguments.get(name, "constexpr") for name in kernel.arg_names},
            constexprs=constants,
            attrs={
                (at[one.name],): [["tt.divisibility", one.divisible]]
                for one in instance.arguments
                if one.divisible > 1
            },
        ),
        target=target("hip", instance.arch, instance.warp_size),
        options={
            **instance.options,
            "enable_fp_fusion": bool(instance.options["enable_fp_fusion"]),
        },
        _env_vars={},
    )
    metadata = made.metadata._asdict()
    return made.kernel, _metadata(instance, constants, kernel.src, metadata), made.asm["amdgcn"]


def _metadata(
    instance: Instance, constants: dict[str, object], source: str, metadata: dict[str, Any]
) -> str:
    """Return launch parameters as JSON, without the paths of the machine in Triton's metadata."""
    fields = {name: metadata[name] for name in _LAUNCH} | {
        "arch": instance.arch,
        "arguments": [vars(argument) for argument in instance.arguments],
        "choices": dict(instance.chosen),
        "constants": constants,
        "name": instance.name,
        "options": dict(instance.options),
        "source_sha256": sha256_of_text(source),
        "symbol": metadata["name"],
        "triton": metadata["triton_version"],
    }
    # A constant may be a data type of Triton.
    return json.dumps(fields, indent=1, sort_keys=True, default=str) + "\n"


def _value(text: str) -> object:
    """Parse a number, True, False or None; other texts are constants themselves."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    return dict(text.split("=", 1) for text in texts)


def _main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="qola.triton.compile", description=__doc__)
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
    sys.exit(run_main(lambda: _main(sys.argv[1:])))
