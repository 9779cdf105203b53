"""Refuses a plan whose names and paths would lead its readers elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qola.errors import unseen
from qola.json_types import WrongValueError
from qola.manifest.archs import MAX_ARCHS

if TYPE_CHECKING:
    from qola.codegen.types import CodeObject
    from qola.plan.model import Plan

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Names and paths below a directory.
_PARTS = re.compile(r"(?:(?!\.\.?(?:/|$))[^/]{1,255}(?:/|$))+(?<!/)")


@dataclass(frozen=True)
class _Words:
    """Words of one part of a plan.

    Attributes:
        files: names of files and targets, and paths.
        names: of C++.
        texts: what stands in arguments and messages.
    """

    files: Iterable[str] = ()
    names: Iterable[str] = ()
    texts: Iterable[str] = ()
    code_objects: Iterable[CodeObject] = ()
    kernels: Iterable[int] = ()


def check_plan(plan: Plan) -> None:
    """Refuse names and paths that lead out of the directories that readers write to and read in.

    Raises:
        WrongValueError: there is one, or an index without its kernel instance.
    """
    for of, words in (*_of_plan(plan), *_of_libraries(plan), *_of_python(plan)):
        if not all(0 <= index < len(plan.kernels) for index in words.kernels):
            raise WrongValueError(f"an index in {of} without its kernel instance")
        if not all(found.arch in plan.archs for found in words.code_objects):
            raise WrongValueError(f"a code object of {of} for an arch beside the plan's")
        _check_words(words)
    _check_kernels(plan)
    _check_batches(plan)
    if len(plan.archs) > MAX_ARCHS:
        raise WrongValueError(f"{len(plan.archs)} archs, more than {MAX_ARCHS}")


def _check_words(words: _Words) -> None:
    for name in words.names:
        if not _NAME.fullmatch(name):
            raise WrongValueError(f"{name[:200]}, no name of C++")
    for text in words.texts:
        if unseen(text):
            raise WrongValueError(f"{text[:200]}, which has control characters")
    for file in (*words.files, *(found.file for found in words.code_objects)):
        if not _PARTS.fullmatch(file) or unseen(file):
            raise WrongValueError(f"{file[:200]}, no name or path below a directory")


def _check_kernels(plan: Plan) -> None:
    sets = {headers.name for headers in plan.header_sets}
    for kernel in plan.kernels:
        if kernel.package not in plan.packages:
            raise WrongValueError(f"{kernel.name} in package {kernel.package}, which is not there")
        if kernel.headers not in sets:
            raise WrongValueError(f"{kernel.name} with header set {kernel.headers}, not there")


def _check_batches(plan: Plan) -> None:
    batched: set[int] = set()
    for batch in plan.batches:
        if {plan.kernels[index].package for index in batch.kernels} != {batch.package}:
            raise WrongValueError(f"kernel instances of another package in {batch.name}, or none")
        if len(batched.union(batch.kernels)) != len(batched) + len(batch.kernels):
            raise WrongValueError("a kernel instance in two batches")
        batched.update(batch.kernels)


def _of_plan(plan: Plan) -> Iterator[tuple[str, _Words]]:
    """Yield the words of the plan, and of kernel instances and what they are compiled with."""
    own = (*plan.inputs, *plan.configs, *plan.licenses, *plan.packages)
    namespace = (plan.namespace,) if plan.namespace else ()
    yield plan.name, _Words(own, namespace, (plan.name, *plan.archs, *plan.packages))
    for name, package in plan.packages.items():
        yield name, _Words(texts=(*package.copts, package.headers))
    for headers in plan.header_sets:
        yield headers.name, _Words(headers.files, texts=(headers.name, *headers.include_dirs))
    for kernel in plan.kernels:
        entry = (kernel.entry,) if kernel.entry else ()
        files = (kernel.name, kernel.package, kernel.module, *entry)
        yield kernel.name, _Words(files, texts=kernel.archs)
    for batch in plan.batches:
        yield batch.name, _Words((batch.name, batch.package, batch.file), kernels=batch.kernels)


def _of_libraries(plan: Plan) -> Iterator[tuple[str, _Words]]:
    for module in plan.modules:
        own = (module.entry_source, module.public_header, module.kernel_names)
        beside = (*module.asm_tables, *module.stubs, *module.entry_sources)
        files = [module.name, module.library, *(one.name for one in module.entry_sources)]
        files += [one.file for one in (*own, *beside)]
        files += [one.file for one in module.sources]
        yield (
            module.name,
            _Words(
                files,
                (*(entry.name for entry in module.entries), *module.macros),
                (*module.macros.values(), *module.copts),
                module.code_objects,
                module.kernels,
            ),
        )


def _of_python(plan: Plan) -> Iterator[tuple[str, _Words]]:
    """Yield the words of what Python imports or calls, and of kernels in Triton."""
    for torch in plan.torch_modules:
        beside = (*torch.asm_tables, *torch.entry_sources, *torch.generated)
        files = [torch.name, torch.entry, torch.library, *(one.file for one in beside)]
        files += [one.file for one in torch.sources]
        words = _Words(files, (torch.symbol,), torch.copts, torch.code_objects, torch.kernels)
        yield torch.name, words
    for python in plan.python_modules:
        files = [python.name, python.library, *(one.file for one in python.sources)]
        files += [one.file for one in python.generated]
        symbol = (python.symbol,) if python.symbol else ()
        texts = (*python.copts, *python.include_dirs)
        yield python.name, _Words(files, symbol, texts, python.code_objects)
    for triton in plan.triton:
        if not triton.files:
            raise WrongValueError(f"{triton.name}, a kernel without a file")
        files = [triton.name, *(file.file for file in triton.files)]
        files += [instance.name for instance in triton.instances]
        values = [value for values in triton.choices.values() for value in values]
        values += [*triton.signature, *triton.signature.values()]
        yield triton.name, _Words(files, (triton.function,), (*triton.choices, *values))
