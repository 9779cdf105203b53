"""A kernel in Triton as it is declared, and the compiles that it stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from qola.errors import Finding, ManifestError
from qola.triton.source import Parameters, read_parameters

#: Options of Triton's compiler that may be chosen, and what they are where nobody does: not what a
#: version of Triton, or the environment, takes for them.
OPTIONS: Mapping[str, int] = {
    "enable_fp_fusion": 1,
    "kpack": 1,
    "matrix_instr_nonkdim": 0,
    "num_stages": 2,
    "num_warps": 4,
    "waves_per_eu": 0,
}
#: Lanes of a wave: 32 from RDNA on.
_WAVE = re.compile(r"gfx(1[0-9])[0-9a-f]{2}$")
#: Bytes of LDS that a workgroup can have, as LLVM has them; 64 KiB elsewhere.
_LDS = {"gfx950": 160 << 10, "gfx1250": 320 << 10}
#: `*fp16:16`: a pointer to fp16, its address divisible by 16.
_TYPE = re.compile(
    r"(?P<type>\*?(?:[iu](?:1|8|16|32|64)|fp(?:16|32|64)|bf16|fp8e\w+))(?::(?P<by>\d+))?$"
)
#: `=0`: a constant in place of what would be handed over.
_CONSTANT = "="
_VALUE = re.compile(r"[A-Za-z0-9_.+-]+$")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_LONGEST = 200


@dataclass(frozen=True)
class Kernel:
    """A kernel, and what it is compiled for.

    Attributes:
        name: how names of its instances begin.
        source: its Python file, as a message names it.
        text: of that file.
        function: the function in it.
        choices: values by name. A name is a `constexpr` parameter of the function, one of OPTIONS,
            or stands in braces in types of parameters.
        archs: to compile for.
        signature: types of parameters, before those that their annotations say; of one that is
            always the same, `=` and its value.
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
    """What is handed over at a launch.

    Attributes:
        type: without what it is divisible by.
        divisible: 1 where nothing is known.
    """

    name: str
    type: str
    divisible: int


@dataclass(frozen=True)
class Instance:
    """One compile.

    Attributes:
        chosen: a value for each choice.
        arguments: in the order of the kernel's parameters.
        constants: `constexpr` parameters and their values, and others that are always the same.
        options: all of OPTIONS.
    """

    name: str
    arch: str
    chosen: Mapping[str, str]
    arguments: tuple[Argument, ...]
    constants: Mapping[str, str]
    options: Mapping[str, int]

    @property
    def warp_size(self) -> int:
        """Lanes of a wave."""
        return warp_size(self.arch)

    @property
    def lds_limit(self) -> int:
        """The most bytes of LDS that a launch can ask for."""
        return _LDS.get(self.arch, 64 << 10)

    def choices_text(self) -> str:
        """Return arch and choices, for messages."""
        return " ".join([self.arch, *(f"{name}={self.chosen[name]}" for name in self.chosen)])


def warp_size(arch: str) -> int:
    """Return how many lanes a wave has."""
    return 32 if _WAVE.match(arch) else 64


def instance_name(kernel: str, chosen: Mapping[str, str], arch: str) -> str:
    """Return the name of a compile: every choice is in it, so one more value renames nothing."""
    return "-".join([kernel, *(f"{name}_{chosen[name]}" for name in sorted(chosen)), arch])


def expand(kernel: Kernel) -> list[Instance]:
    """Return the compiles of a kernel, sorted by name.

    Raises:
        ManifestError: the function is not there, or choices and signature do not fit it; all that
            is wrong.
    """
    parameters = read_parameters(kernel.text, kernel.function, kernel.source)
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


def _types(kernel: Kernel, parameters: Parameters) -> dict[str, str]:
    """Return the types of parameters, and of those of `constexpr` what the signature has."""
    own = {name: said for name, said in kernel.signature.items() if name in parameters.constants}
    types = {name: kernel.signature.get(name, said) for name, said in parameters.types.items()}
    return types | own


def _instance(
    kernel: Kernel, parameters: Parameters, chosen: dict[str, str], arch: str
) -> Instance:
    arguments = []
    constants = {name: chosen[name] for name in chosen if name in parameters.constants}
    for name, said in _types(kernel, parameters).items():
        filled = _PLACEHOLDER.sub(lambda m: chosen[m[1]], said)
        if filled.startswith(_CONSTANT):
            constants[name] = filled.removeprefix(_CONSTANT)
            continue
        match = _TYPE.match(filled)
        assert match  # _check saw to it
        arguments.append(Argument(name, match["type"], int(match["by"] or 1)))
    return Instance(
        name=instance_name(kernel.name, chosen, arch),
        arch=arch,
        chosen=chosen,
        arguments=tuple(arguments),
        constants=constants,
        options={name: int(chosen.get(name, default)) for name, default in OPTIONS.items()},
    )


def _check(kernel: Kernel, parameters: Parameters) -> Iterator[Finding]:
    """Yield all that keeps a kernel from being compiled."""
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
            expected = f"= and a value, for a constant that is no choice, such as {_CONSTANT}0"
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
    if len("-".join([*longest, *kernel.choices])) + 2 * len(kernel.choices) > _LONGEST:
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
        "a type as Triton has it, *fp16, i32 or fp32, and :16 where it is divisible by 16; "
        "or = and a value that is always the same"
    )
    if not said:
        fix = f'annotate it, {name}: "*{{dtype}}:16", or name it in signature'
        yield Finding(place, "no type", expected, fix)
        return
    inside = [part for part in _PLACEHOLDER.findall(said) if part in choices]
    if len(inside) != len(_PLACEHOLDER.findall(said)):
        return  # That a choice is missing is told.
    for values in product(*(choices[part] for part in inside)):
        filled = said
        for part, value in zip(inside, values, strict=True):
            filled = filled.replace(f"{{{part}}}", value)
        if filled.startswith(_CONSTANT) and _VALUE.match(filled.removeprefix(_CONSTANT)):
            continue
        match = _TYPE.match(filled)
        by = int(match["by"] or 1) if match else 0
        if by < 1 or by & (by - 1):
            yield Finding(place, filled, expected)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
