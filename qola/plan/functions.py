"""Functions of AITER's second JIT, csrc/cpp_itfs: a library for each combination of arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qola.aiter.includes import closure, includes
from qola.aiter.missing_names import Includer, missing_headers
from qola.aiter.module_kinds import rocm_libraries
from qola.aiter.preprocess import defined_by
from qola.aiter.template_functions import JIT, Parameter, TemplateFunction, template_functions
from qola.aiter.tree import ROCM, AiterTree
from qola.codegen.cpp_itfs.render import FunctionCall, RenderedFunction, render_functions
from qola.common.folder import Folder
from qola.common.suggestions import did_you_mean
from qola.manifest.types import FunctionSpec, Manifest
from qola.manifest.values import either, quote
from qola.plan.inputs import used_dirs
from qola.plan.model import PlannedFile, PythonModule
from qola.plan.request import ResolvedRequest
from qola_base.errors import Finding, ManifestError, PlanError
from qola_base.files import sha256_of

_VISIBLE = "-fvisibility=default"
"""AITER's JIT compiles its functions so; the version script hides all other symbols."""

_EXAMPLES = {"bool": "true or false", "int": "an integer", "str": "a string"}
_FOLDER = "functions"
"""Directory of the sources in the manifest's repository."""


_Requested = tuple[FunctionSpec, FunctionCall]
"""A combination of arguments of a table."""


def check_functions(manifest: Manifest, tree: AiterTree) -> Iterator[Finding]:
    """Yield findings for functions and arguments that the tree does not have."""
    known = template_functions(tree) if manifest.functions else {}
    for spec in manifest.functions:
        if spec.name not in known:
            yield Finding(
                manifest.place("functions", spec.index, "name"),
                f"unknown function {quote(spec.name)}",
                f"a function of this AITER: {either(known)}"
                if known
                else "an AITER with functions in csrc/cpp_itfs",
                did_you_mean(spec.name, known),
            )
        else:
            yield from _check_arguments(manifest, spec, known[spec.name])


def _check_arguments(
    manifest: Manifest, spec: FunctionSpec, function: TemplateFunction
) -> Iterator[Finding]:
    place = manifest.place("functions", spec.index, "arguments")
    by_name = {parameter.name: parameter for parameter in function.parameters}
    signature = ", ".join(map(_described, function.parameters)) or "none"
    for key, value in spec.arguments:
        if key not in by_name:
            found, fix = f"{spec.name} has no argument {quote(key)}", did_you_mean(key, by_name)
            yield Finding(place, found, f"arguments: {signature}", fix or f"remove {key}")
            continue
        type_name = by_name[key].type
        for item in value if isinstance(value, tuple) else (value,):
            if type_name and type(item).__name__ != type_name:
                yield Finding(
                    place,
                    f"{key} = {quote(item)}",
                    f"{_EXAMPLES[type_name]}: {function.file} declares {key}: {type_name}",
                    f"write {key} = {_converted(item, type_name)}",
                )
    given = {key for key, _ in spec.arguments}
    if missing := [p.name for p in function.parameters if p.required and p.name not in given]:
        yield Finding(
            place,
            f"{spec.name} without {', '.join(missing)}",
            f"arguments: {signature}",
            "add them; python -m qola.aiter_record notes those of a running server",
        )


def _described(parameter: Parameter) -> str:
    text = f"{parameter.name}: {parameter.type}" if parameter.type else parameter.name
    return text if parameter.required else f"[{text}]"


def _converted(value: str | int | bool, type_name: str) -> str:
    """Return a value in TOML as another type would write it, as an example otherwise."""
    if type_name == "str":
        return quote(str(value).lower() if isinstance(value, bool) else str(value))
    if type_name == "bool":
        return str(str(value).lower() in ("1", "true")).lower()
    return str(value) if str(value).isdigit() else "1"


def plan_functions(
    resolved: ResolvedRequest, output: Folder
) -> tuple[tuple[PythonModule, ...], dict[str, str]]:
    """Plan the libraries of the manifest's functions, and write their sources.

    Returns:
        The libraries, and digests of the files that name them and make their sources, by path.

    Raises:
        PlanError: AITER's Python does not make one from a template alone, or a header is missing.
        ManifestError: two tables request the same library.
        CodegenError: AITER's JIT cannot be imported.
    """
    request = resolved.request
    manifest, tree = request.manifest, request.tree
    if not manifest.functions:
        return (), {}
    known = template_functions(tree)
    requested = [
        (spec, FunctionCall(known[spec.name], arguments))
        for spec in manifest.functions
        for arguments in spec.combinations()
    ]
    calls = [call for _, call in requested]
    rendered = render_functions(tree, calls, resolved.archs, request.rocm_version or ROCM)
    _check_rendered(manifest, requested, rendered.functions)
    folder = f"{tree.csrc_dir}/{JIT.partition('/')[0]}/"
    own = [file for file in rendered.inputs if file.startswith(folder)]
    libraries = tuple(
        _plan(tree, call, function, rendered.inputs, output)
        for call, function in zip(calls, rendered.functions, strict=True)
    )
    return libraries, {file: sha256_of(tree.root / file) for file in own}


def _check_rendered(
    manifest: Manifest, requested: Sequence[_Requested], functions: Sequence[RenderedFunction]
) -> None:
    findings: list[Finding] = []
    repeated: list[Finding] = []
    first: dict[str, FunctionSpec] = {}
    for (spec, call), function in zip(requested, functions, strict=True):
        place = manifest.place("functions", spec.index)
        if function.error:
            findings.append(
                Finding(
                    place,
                    f"{call.text}: {function.error}",
                    "a function whose library AITER makes from its template alone",
                    "remove it: AITER's JIT tries to make it when it is called",
                )
            )
        elif function.name in first:
            line = manifest.lines.of(("functions", first[function.name].index))
            found = f"{call.text}, which line {line} requests already"
            fix = "remove one of the two"
            repeated.append(Finding(place, found, "each library once", fix))
        else:
            first[function.name] = spec
    if repeated:
        raise ManifestError(repeated)
    if findings:
        raise PlanError(findings)


def _plan(
    tree: AiterTree,
    call: FunctionCall,
    rendered: RenderedFunction,
    inputs: Sequence[str],
    output: Folder,
) -> PythonModule:
    name, dirs = rendered.name, rendered.include_dirs
    file = f"{_FOLDER}/{name}.cpp"
    source = PlannedFile.write(output, name, file, rendered.source)
    _refuse_missing(tree, call, rendered)
    headers = closure(tree.root, dirs, [root for root, _ in includes(rendered.source)])
    texts = [rendered.source, *map(tree.text, headers)]
    return PythonModule(
        name=name,
        library=f"{name}.so",
        symbol=name,
        copts=(*rendered.flags, _VISIBLE),
        sources=(source,),
        include_dirs=used_dirs(dirs, headers),
        headers=headers,
        rocm=rocm_libraries(included for text in texts for included, _ in includes(text)),
        generated=(),
        code_objects=(),
        inputs=tuple(sorted({*inputs, *headers})),
        source_copts={},
        call=call.text,
    )


def _refuse_missing(tree: AiterTree, call: FunctionCall, rendered: RenderedFunction) -> None:
    includer = Includer(call.function.file, rendered.source)
    macros = defined_by(rendered.flags)
    missing = missing_headers(tree.root, rendered.include_dirs, [includer], macros, frozenset())
    if missing:
        raise PlanError(
            Finding(
                include.place,
                f'#include "{include.name}", which the tree does not have, for {call.text}',
                "a tree with the headers of its templates and its Composable Kernel",
                "use an AITER tree with its submodules (git submodule update --init --recursive)",
            )
            for include in missing
        )
