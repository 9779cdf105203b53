"""The forms of libraries: which go together, and which parts of a manifest have them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from qola.aiter.attention import ATTENTION
from qola.common.layout import TRITON
from qola.common.version import docs_url
from qola.manifest.types import Manifest, ModuleSpec
from qola.plan.spec import Forms
from qola_base.errors import ExitCode, Finding, QolaError
from qola_base.progress import log

CK_JIT = "NVTE_CK_JIT"

#: Versions in normal form (PEP 440, appendix B), as in names of wheels.
_VERSION = re.compile(
    r"(?:[1-9]\d*!)?\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?"
    r"(?:\+[a-z0-9]+(?:\.[a-z0-9]+)*)?"
)

_FULL, _LAZY = ("0", "false", "off", "auto"), ("1", "true", "on")
"""Values of CK_JIT in lower case for libraries with kernels, and for lazy libraries."""


class ChoiceError(QolaError, title="what to build is not clear", exit_code=ExitCode.USAGE):
    """Options or the environment are contradictory or invalid."""


_PARTS = {
    "forward": "libmha_fwd among the modules",
    "attention": f"{' or '.join(ATTENTION)} among the modules",
    "triton": "kernels in Triton",
    "python": "modules that Python imports",
    "aiter": 'modules of mode = "aiter"',
}
"""The parts of a build that a form can need."""


@dataclass(frozen=True)
class Form:
    """A form of the libraries of a build.

    Attributes:
        option: the option that requests it.
        name: its description in errors.
        parts: names of `_PARTS` that have it; a build must have one of them.
        anywhere: a build without these parts can request it, too, but for AITER's own Python: an
            environment variable requests it of all manifests.
        apart: forms that it does not go together with, of those in preceding rows of FORMS.
        needs: a form that it requires.
        advice: for modules without this form.
    """

    option: str
    name: str
    parts: tuple[str, ...]
    anywhere: bool = False
    apart: tuple[str, ...] = ()
    needs: str = ""
    advice: str = ""


FORMS = {
    "lazy": Form(
        "--lazy", "lazy libraries, which have no kernels inside", ("attention",), anywhere=True
    ),
    "static": Form(
        *("--static", "an archive, which has its kernels inside", ("attention",)), apart=("lazy",)
    ),
    "split": Form(
        "--split",
        "libraries whose device code is in packs, one per arch",
        ("attention", "triton"),
        apart=("lazy", "static"),
    ),
    "wheel": Form(
        "--wheel",
        "a Python wheel",
        ("attention", "triton", "aiter"),
        advice=f"qola_torch_wheel packages modules that Python imports "
        f'({docs_url("guide/pybind.md")}), mode = "aiter" those for AITER\'s own Python '
        f"({docs_url('guide/serving.md')})",
    ),
    "jax": Form(
        # Gradients also start from the results of the forward function.
        *("--jax", "attention for JAX, which calls the forward function", ("forward",)),
        needs="wheel",
    ),
    "prebuilt": Form(
        "--prebuilt", "prebuilt bundles", ("attention", "triton"), apart=("split", "wheel")
    ),
}
"""Which forms go together. rules/private/bundle.bzl has the pairs that a qola_bundle can have."""


def choose_forms(
    requested: Forms,
    environ: Mapping[str, str],
    manifest: Manifest,
    modules: Sequence[ModuleSpec],
    triton: bool,
) -> Forms:
    """Return the forms to build; $NVTE_CK_JIT decides about lazy libraries if the request does not.

    Logs the modules that a form leaves out.

    Args:
        modules: the modules to build.
        triton: the build has kernels in Triton, too.

    Raises:
        ChoiceError: the forms do not go together, or not with the modules.
    """
    forms = replace(requested, lazy=choose_lazy(requested.lazy, environ))
    names = [module.name for module in modules]
    found = ", ".join(names) or "no modules"
    if manifest.for_aiter:
        found = f'{manifest.place("build", "mode")} is "{manifest.mode}"'
    parts = _parts_of(names, triton, for_aiter=manifest.for_aiter)
    findings = list(_contradictions(forms, parts, found))
    if forms.lazy and requested.lazy is None:
        fix = f"unset {CK_JIT}, or add --no-lazy"
        option = FORMS["lazy"].option
        findings = [replace(f, place=CK_JIT, fix=fix) if f.place == option else f for f in findings]
    if findings:
        raise ChoiceError(findings)
    if forms.split and (whole := without_form("split", names)):
        log.info(f"not split, with device code of all archs inside: {', '.join(whole)}")
    if forms.wheel and not manifest.for_aiter and (others := without_form("wheel", names)):
        log.warning(f"not in the wheel: {', '.join(others)} ({FORMS['wheel'].advice})")
    return forms


def _parts_of(modules: Sequence[str], triton: bool, *, for_aiter: bool) -> set[str]:
    """Return the names of `_PARTS` that a build has."""
    if for_aiter:
        return {"aiter"}
    found = {_part_of(module) for module in (*modules, *([TRITON] if triton else []))}
    return found | ({"forward"} if "libmha_fwd" in modules else set())


def _part_of(module: str) -> str:
    if module == TRITON:
        return "triton"
    return "attention" if module in ATTENTION else "python"


def without_form(name: str, modules: Iterable[str]) -> list[str]:
    """Return those of modules and `TRITON` that do not have a form, for C++ and other Python."""
    return [module for module in modules if _part_of(module) not in FORMS[name].parts]


def excluded(forms: Forms, name: str) -> str:
    """Return the option of a requested form that does not go together with `name`, "" if none."""
    return next((FORMS[o].option for o in FORMS[name].apart if getattr(forms, o)), "")


def _contradictions(forms: Forms, parts: set[str], found: str) -> Iterator[Finding]:
    """Yield findings for forms that do not go together, and for those that no part has.

    Args:
        parts: names of `_PARTS` that the build has.
        found: these parts, for findings.
    """
    for name, form in FORMS.items():
        if not getattr(forms, name, False):
            continue
        for other in form.apart:
            if getattr(forms, other):
                unset = f"; --no-lazy if {CK_JIT} is set" if other == "lazy" else ""
                fix = f"leave out {FORMS[other].option} or {form.option}{unset}"
                expected = f"{form.name}, or the other form"
                yield Finding(form.option, FORMS[other].name, expected, fix)
        if not parts.intersection(form.parts) and not (form.anywhere and parts != {"aiter"}):
            needed = ", or ".join(_PARTS[part] for part in form.parts)
            fix = form.advice or f"leave out {form.option}, or build another --group"
            yield Finding(form.option, found, f"{needed}: others do not have this form", fix)
        elif form.needs and not getattr(forms, form.needs):
            option = FORMS[form.needs].option
            expected = f"{form.name}, as a part of {FORMS[form.needs].name}"
            yield Finding(form.option, f"no {option}", expected, f"add {option} VERSION")
    if forms.wheel and not _VERSION.fullmatch(forms.wheel):
        expected = "a version as Python writes it: 1.2.3, 1.2.3rc1 or 1.2.3+rocm7"
        yield Finding(FORMS["wheel"].option, forms.wheel, expected)


def choose_lazy(asked: bool | None, environ: Mapping[str, str]) -> bool:
    """Return whether to build lazy libraries: as requested, else by $NVTE_CK_JIT, else not.

    Logs a line if the variable decides, or if TransformerEngine would decide otherwise without it.

    Raises:
        ChoiceError: the variable has an invalid value.
    """
    given = environ.get(CK_JIT, "")
    if asked is not None:
        return asked
    if not given:
        others = sorted(name for name in environ if name.startswith("NVTE_") and environ[name])
        if others:
            log.info(
                f"full libraries, with their kernels inside: {CK_JIT} is not set, which means lazy "
                f"ones to TransformerEngine ({others[0]} is set), and not to qola: --lazy, or "
                f"--no-lazy without this line"
            )
        return False
    if given.lower() not in (*_FULL, *_LAZY):
        full, lazy = ", ".join(_FULL), ", ".join(_LAZY)
        raise ChoiceError(
            Finding(
                CK_JIT,
                given,
                f"{full} (libraries with their kernels inside) or {lazy} (lazy libraries)",
                f"unset {CK_JIT}, and use qola build --lazy or --no-lazy",
            )
        )
    log.warning(f"{CK_JIT}={given} chooses the libraries; use qola build --lazy or --no-lazy")
    return given.lower() in _LAZY


def modules_with_kernels(modules: Sequence[ModuleSpec], manifest: str) -> list[str]:
    """Return the names of the modules with kernels; raise ChoiceError if there is none."""
    names = [module.name for module in modules if module.name in ATTENTION]
    if not names:
        expected = f"one of {', '.join(ATTENTION)}"
        raise ChoiceError(Finding(manifest, "no module with kernels", expected))
    return names
