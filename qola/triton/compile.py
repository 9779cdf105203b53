"""One compile of a kernel in Triton, in a process of its own: no GPU, no ROCm, the same bytes.

The process is forked before Triton is imported. It has an environment of its own, since dozens of
variables change what Triton makes, and a cache that is gone after it.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
import traceback
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from qola.errors import CodegenError, Finding
from qola.files import sha256_of_text
from qola.triton.kernel import Instance

#: What Triton is told by its environment: no line numbers, which have paths; backends that are
#: there, since the one for other vendors' GPUs is not.
_ENVIRONMENT = {"TRITON_BACKENDS_IN_TREE": "1", "TRITON_DISABLE_LINE_INFO": "1"}
#: Of Triton's metadata, what a launch needs.
_LAUNCH = (
    "global_scratch_align",
    "global_scratch_size",
    "num_ctas",
    "num_warps",
    "profile_scratch_align",
    "profile_scratch_size",
    "shared",
    "warp_size",
)


@dataclass(frozen=True)
class Compiled:
    """What a compile gives.

    Attributes:
        code: the code object (hsaco).
        metadata: symbol, arguments, and what a launch needs, as JSON.
        text: its assembly.
    """

    code: bytes
    metadata: str
    text: str

    @cached_property
    def launch(self) -> dict[str, Any]:
        """What the metadata says."""
        found: dict[str, Any] = json.loads(self.metadata)
        return found


def compile_instance(
    instance: Instance, source: Path, function: str, time_limit: float = 0
) -> Compiled:
    """Compile a kernel.

    Args:
        source: its Python file; modules beside it can be imported.
        time_limit: seconds, 0 for none.

    Raises:
        CodegenError: Triton refuses the kernel, is not there, or takes too long; its choices are
            in the message.
    """
    with tempfile.TemporaryDirectory(prefix="qola-triton-") as scratch:
        # Forked: this process has one thread, and the other need not read the package anew.
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(
            target=_in_process, args=(sender, instance, source.absolute(), function, scratch)
        )
        process.start()
        sender.close()
        try:
            there = receiver.poll(time_limit or None)
            result = receiver.recv() if there else f"not done after {time_limit:g} seconds"
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
        # Triton itself tells it when it launches.
        result, fix = f"{needed} bytes of LDS", "smaller tiles, or fewer num_stages"
        expected = f"at most {instance.lds_limit} bytes on {instance.arch}"
    else:
        fix = "" if there else "raise time_limit, or 0 for none"
        expected = f"a code object for {instance.arch}"
    place = f"{source}: {function}: {instance.choices_text()}"
    title = f"{instance.name} was not compiled"
    raise CodegenError(Finding(place, result, expected, fix), title)


def _in_process(
    sender: Connection, instance: Instance, source: Path, function: str, scratch: str
) -> None:
    """Send what a compile gives, or a text that says why it gives nothing."""
    places = {"HOME": scratch, "TMPDIR": scratch, "TRITON_CACHE_DIR": scratch}
    os.environ.clear()
    os.environ.update(_ENVIRONMENT | places | {"TRITON_HOME": scratch})
    tempfile.tempdir = scratch
    # Behind all others: a file may have the name of a module of Python's or Triton's own.
    sys.path.append(str(source.parent))
    try:
        sender.send(_compile(instance, source, function))
    except BaseException as error:
        sender.send(_told(error))


def _told(error: BaseException) -> str:
    """Return what an error says, and those behind it: Triton has one for each function's call."""
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
    said = made.metadata._asdict()
    return made.kernel, _metadata(instance, constants, kernel.src, said), made.asm["amdgcn"]


def _metadata(
    instance: Instance, constants: dict[str, object], source: str, said: dict[str, Any]
) -> str:
    """Return what a launch needs as JSON: nothing of the machine, as Triton's own has."""
    told = {name: said[name] for name in _LAUNCH} | {
        "arch": instance.arch,
        "arguments": [
            {"divisible": one.divisible, "name": one.name, "type": one.type}
            for one in instance.arguments
        ],
        "choices": dict(instance.chosen),
        "constants": constants,
        "name": instance.name,
        "options": dict(instance.options),
        "source_sha256": sha256_of_text(source),
        "symbol": said["name"],
        "triton": said["triton_version"],
    }
    # A constant may be a data type of Triton.
    return json.dumps(told, indent=1, sort_keys=True, default=str) + "\n"


def _value(text: str) -> object:
    """Return a constant: a number, True, False or None, and else the text itself."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
