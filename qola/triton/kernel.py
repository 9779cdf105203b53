"""Expands the declaration of a kernel in Triton to its instances: one per choice and arch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import TypedDict

from qola_base.arch_facts import ARCHS
from qola_base.errors import Finding, ManifestError

#: Options of Triton's compiler and their defaults. They replace those of the version of Triton and
#: of the environment.
OPTIONS: Mapping[str, int] = {
    "enable_fp_fusion": 1,
    "kpack": 1,
    "matrix_instr_nonkdim": 0,
    "num_stages": 2,
    "num_warps": 4,
    "waves_per_eu": 0,
}
#: Archs whose waves have 32 lanes: RDNA and later.
_WAVE32 = re.compile(r"gfx(1[0-9])[0-9a-f]{2}$")
#: LDS of a workgroup in bytes on archs that are not in ARCHS.
_LDS = 64 << 10
#: `*fp16:16`: a pointer to fp16, its address divisible by 16.
_TYPE = re.compile(
    r"(?P<type>\*?(?:[iu](?:1|8|16|32|64)|fp(?:16|32|64)|bf16|fp8e\w+))(?::(?P<by>\d+))?$"
)
#: `=0`: a constant instead of an argument of the launch.
_CONSTANT = "="
_VALUE = re.compile(r"[A-Za-z0-9_.+-]+$")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_LONGEST_NAME = 200
#: The format characters of `struct` for types of arguments; pointers have Q.
_FORMATS = {"fp32": "f", "fp64": "d", "i1": "?"} | {
    f"{sign}{bits}": letter if sign == "i" else letter.upper()
    for sign in "iu"
    for bits, letter in ((8, "b"), (16, "h"), (32, "i"), (64, "q"))
}


class ArgumentRecord(TypedDict):
    """An `Argument` of a launch in JSON."""

    divisible: int
    name: str
    type: str


class LaunchRecord(TypedDict):
    """The JSON file of a compiled kernel instance, with the parameters of its launch.

    Keys:
        choices: values of the choices of its declaration, by name.
        constants: values of `constexpr` parameters that are not choices.
        options: options of Triton's compiler.
        shared: bytes of LDS.
        triton: Triton's version.
        global_scratch_size, profile_scratch_size: bytes of GPU memory that a launch must pass.
    """

    arch: str
    arguments: list[ArgumentRecord]
    choices: dict[str, str]
    constants: dict[str, object]
    global_scratch_align: int
    global_scratch_size: int
    name: str
    num_ctas: int
    num_warps: int
    options: dict[str, int]
    profile_scratch_align: int
    profile_scratch_size: int
    shared: int
    source_sha256: str
    symbol: str
    triton: str
    warp_size: int


@dataclass(frozen=True)
class Kernel:
    """The declaration of a kernel.

    Attributes:
        name: prefix of the names of its instances.
        source: path of its Python file, for messages; `text` is its content.
        choices: values by name. A name is a `constexpr` parameter of the function, one of OPTIONS,
            or a placeholder in types of parameters.
        signature: types of parameters, which override annotations; `=` and a value for a parameter
            that is a constant.
    """

    name: str
    source: str
    text: str
    function: str
    choices: Mapping[str, tuple[str, ...]]
    archs: tuple[str, ...]
    signature: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Argument:
    """An argument of a launch.

    Attributes:
        type: as in Triton, such as *fp16 or i32.
        divisible: a known divisor of the value; 1 if none is known.
    """

    name: str
    type: str
    divisible: int

    @property
    def format(self) -> str:
        """The format character of `struct`; KeyError for types that no C function can pass."""
        return "Q" if self.type.startswith("*") else _FORMATS[self.type]


@dataclass(frozen=True)
class Instance:
    """A kernel instance: one compile.

    Attributes:
        chosen: the value of each choice.
        constants: values of `constexpr` parameters and of parameters with a constant.
        options: values of all OPTIONS.
    """

    name: str
    arch: str
    chosen: Mapping[str, str]
    arguments: tuple[Argument, ...]
    constants: Mapping[str, str]
    options: Mapping[str, int]

    @property
    def warp_size(self) -> int:
        """Number of lanes of a wave."""
        return 32 if _WAVE32.match(self.arch) else 64

    @property
    def lds_limit(self) -> int:
        """Largest LDS of a workgroup in bytes."""
        return ARCHS[self.arch].lds_bytes if self.arch in ARCHS else _LDS

    def choices_text(self) -> str:
        """Return arch and choices as a text for messages."""
        return " ".join([self.arch, *(f"{name}={self.chosen[name]}" for name in self.chosen)])


def instance_name(kernel: str, chosen: Mapping[str, str], arch: str) -> str:
    """Return an instance's name, with all choices, so that a new value renames nothing."""
    return "-".join([kernel, *(f"{name}_{chosen[name]}" for name in sorted(chosen)), arch])


def expand(kernel: Kernel) -> list[Instance]:
    """Return the instances of a kernel by name, or raise ManifestError with all findings."""
    parameters = _read_parameters(kernel.text, kernel.function, kernel.source)
    findings = list(_check(kernel, parameters))
    if findings:
        raise ManifestError(findings, f"kernel {kernel.name} cannot be compiled as it is declared")
    names = sorted(kernel.choices)
    return sorted(
        (
            _instance(kernel, parameters, dict(zip(names, values, strict=True)), arch)
            for values in product(*(kernel.choices[name] for name in names))
            for arch in kernel.archs
        ),
        key=lambda one: one.name,
    )


@dataclass(frozen=True)
class _Parameters:
    """Parameters of a kernel.

    Attributes:
        types: type of each argument of a launch by name, in order; "" without an annotation.
        constants: names of `tl.constexpr` parameters, of which `needed` have no default.
    """

    types: dict[str, str]
    constants: frozenset[str]
    needed: frozenset[str]


def _read_parameters(text: str, function: str, place: str) -> _Parameters:
    """Return the parameters of a function; raise ManifestError if the file lacks it."""
    try:
        nodes = ast.parse(text).body
    except SyntaxError as error:
        raise ManifestError(
            Finding(f"{place}:{error.lineno}", str(error.msg), "a file in Python")
        ) from None
    found = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    if function not in found:
        expected = "one of its functions: " + (", ".join(sorted(found)) or "it has none")
        raise ManifestError(Finding(place, f"no function {function}", expected))
    arguments = found[function].args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    # args.defaults belong to the last parameters; kw_defaults has an entry, or None, for each.
    plain = len(every) - len(arguments.kwonlyargs) - len(arguments.defaults)
    defaults = [None] * plain + [*arguments.defaults, *arguments.kw_defaults]
    constants = [one for one in every if _annotation(one).endswith("constexpr")]
    with_default = {one.arg for one, value in zip(every, defaults, strict=True) if value}
    return _Parameters(
        types={one.arg: _annotation(one) for one in every if one not in constants},
        constants=frozenset(one.arg for one in constants),
        needed=frozenset(one.arg for one in constants if one.arg not in with_default),
    )


def _annotation(parameter: ast.arg) -> str:
    """Return a parameter's annotation; "" for none, and for an expression but `constexpr`.

    Types of Triton are texts: an expression such as `int` is none of them.
    """
    annotation = parameter.annotation
    if isinstance(annotation, ast.Constant):
        return annotation.value if isinstance(annotation.value, str) else ""
    text = ast.unparse(annotation) if annotation else ""
    return text if text.endswith("constexpr") else ""


def _types(kernel: Kernel, parameters: _Parameters) -> dict[str, str]:
    """Return the types of parameters, with the constants of `constexpr` ones in the signature."""
    own = {name: said for name, said in kernel.signature.items() if name in parameters.constants}
    types = {name: kernel.signature.get(name, said) for name, said in parameters.types.items()}
    return types | own


def _filled(said: str, chosen: Mapping[str, str]) -> str:
    """Return a type with the values of its placeholders."""
    return _PLACEHOLDER.sub(lambda match: chosen[match[1]], said)


def _instance(
    kernel: Kernel, parameters: _Parameters, chosen: dict[str, str], arch: str
) -> Instance:
    arguments = []
    constants = {name: chosen[name] for name in chosen if name in parameters.constants}
    for name, said in _types(kernel, parameters).items():
        filled = _filled(said, chosen)
        if filled.startswith(_CONSTANT):
            constants[name] = filled.removeprefix(_CONSTANT)
            continue
        match = _TYPE.match(filled)
        assert match, "_check refuses other types"
        arguments.append(Argument(name, match["type"], int(match["by"] or 1)))
    return Instance(
        name=instance_name(kernel.name, chosen, arch),
        arch=arch,
        chosen=chosen,
        arguments=tuple(arguments),
        constants=constants,
        options={name: int(chosen.get(name, default)) for name, default in OPTIONS.items()},
    )


def _check(kernel: Kernel, parameters: _Parameters) -> Iterator[Finding]:
    """Yield findings for a declaration that does not fit the function."""
    place = f"{kernel.source}: {kernel.function}"
    types = _types(kernel, parameters)
    in_types = {name for said in types.values() for name in _PLACEHOLDER.findall(said)}
    known = parameters.constants | set(OPTIONS) | in_types
    for name in sorted(set(kernel.signature) - set(parameters.types) - parameters.constants):
        yield Finding(f"{place}: signature", name, "parameters: " + _listed(parameters.types))
    for name in sorted(set(kernel.choices) - known):
        yield Finding(f"{place}: choices", name, f"one of {_listed(known)}")
    for name in sorted(parameters.constants & set(kernel.signature)):
        said = kernel.signature[name]
        if name in kernel.choices or not said.startswith(_CONSTANT):
            expected = f"= and a value, for a constant that is not a choice, such as {_CONSTANT}0"
            yield Finding(f"{place}: signature", f"{name} {said}", expected)
    missing = (parameters.needed - set(kernel.signature)) | in_types
    for name in sorted(missing - set(kernel.choices)):
        yield Finding(
            f"{place}: choices", f"nothing for {name}", "a list of values", f'{name} = ["..."]'
        )
    for name, values in sorted(kernel.choices.items()):
        yield from _check_values(f"{place}: choices.{name}", name, values)
    if not kernel.archs:
        yield Finding(f"{place}: archs", "none", "archs to compile for, such as gfx942")
    for name, said in types.items():
        yield from _check_type(f"{place}: {name}", name, said, kernel.choices)
    longest = [kernel.name, *(max(v, key=len, default="") for v in kernel.choices.values())]
    if len("-".join([*longest, *kernel.choices])) + 2 * len(kernel.choices) > _LONGEST_NAME:
        yield Finding(place, "names of more than 200 characters", "fewer or shorter choices")


def _check_values(place: str, name: str, values: tuple[str, ...]) -> Iterator[Finding]:
    if not values or len(set(values)) != len(values):
        yield Finding(place, repr(list(values)), "values, each once")
    for value in values:
        if name in OPTIONS and not value.isdecimal():
            yield Finding(place, repr(value), "a number")
        elif not _VALUE.match(value):
            yield Finding(place, repr(value), "letters, digits, and any of _ . + -")


def _check_type(
    place: str, name: str, said: str, choices: Mapping[str, tuple[str, ...]]
) -> Iterator[Finding]:
    expected = (
        "a type of Triton, such as *fp16, i32 or fp32, with :16 if the value is divisible by 16; "
        "or = and a constant value"
    )
    if not said:
        fix = f'annotate it, {name}: "*{{dtype}}:16", or name it in signature'
        yield Finding(place, "no type", expected, fix)
        return
    inside = dict.fromkeys(_PLACEHOLDER.findall(said))
    if not inside.keys() <= choices.keys():
        return  # _check reports missing choices.
    for values in product(*(choices[part] for part in inside)):
        filled = _filled(said, dict(zip(inside, values, strict=True)))
        if filled.startswith(_CONSTANT) and _VALUE.match(filled.removeprefix(_CONSTANT)):
            continue
        match = _TYPE.match(filled)
        by = int(match["by"] or 1) if match else 0
        if by < 1 or by & (by - 1):
            yield Finding(place, filled, expected)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
