"""Chooses the kinds of libraries of a build: by options, else by the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from qola.aiter.attention import ATTENTION
from qola.common.version import docs_url
from qola.manifest.constants import AITER
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


def choose_forms(
    requested: Forms,
    environ: Mapping[str, str],
    manifest: Manifest,
    modules: Sequence[ModuleSpec],
    triton: bool,
) -> Forms:
    """Return the forms to build; $NVTE_CK_JIT decides about lazy libraries if the request does not.

    Args:
        modules: the modules to build.
        triton: the build has kernels in Triton, too.

    Raises:
        ChoiceError: the forms do not go together, or not with the modules.
    """
    forms = replace(requested, lazy=choose_lazy(requested.lazy, environ))
    lazy = bool(forms.lazy)
    check_lazy(lazy, requested.lazy, manifest)
    check_wheel(forms.wheel, modules, triton, manifest.for_aiter)
    check_jax(forms.jax, forms.wheel, modules, manifest)
    check_split(forms.split, lazy, forms.static, modules, triton)
    check_static(forms.static, lazy, modules)
    return forms


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


def check_lazy(lazy: bool, asked: bool | None, manifest: Manifest) -> None:
    """Raise ChoiceError if lazy libraries are requested of modules for AITER's own Python.

    Args:
        asked: the option, None if the environment decides.
    """
    if lazy and manifest.for_aiter:
        place = "--lazy" if asked else CK_JIT
        raise ChoiceError(
            Finding(
                place,
                f'lazy libraries, and {manifest.place("build", "mode")} is "{AITER}"',
                "modules with their kernels inside: AITER's own Python imports no others",
                "leave out --lazy" if asked else f"unset {CK_JIT}, or add --no-lazy",
            )
        )


def check_static(static: bool, lazy: bool, modules: Sequence[ModuleSpec]) -> None:
    """Raise ChoiceError if an archive is requested with lazy libraries, or without attention."""
    if static and lazy:
        raise ChoiceError(
            Finding(
                "--static",
                "lazy libraries, which have no kernels inside",
                "an archive, or lazy libraries: an archive has its kernels inside",
                "leave out --lazy or --static; --no-lazy if NVTE_CK_JIT is set",
            )
        )
    if static and not any(module.name in ATTENTION for module in modules):
        raise ChoiceError(
            Finding(
                "--static",
                ", ".join(module.name for module in modules),
                f"{' or '.join(ATTENTION)} among the modules: an archive has no others",
                "leave out --static, or build another --group",
            )
        )


def check_split(
    split: bool, lazy: bool, static: bool, modules: Sequence[ModuleSpec], triton: bool
) -> None:
    """Raise ChoiceError if libraries that have no device code of their own are to be split.

    Logs the modules that remain whole.
    """
    if not split:
        return
    if lazy or static:
        found = "lazy libraries, which have no device code" if lazy else "--static, an archive"
        other = "--lazy" if lazy else "--static"
        raise ChoiceError(
            Finding(
                "--split",
                found,
                "full libraries: their device code moves to one pack per arch",
                f"leave out {other} or --split"
                + ("; --no-lazy if NVTE_CK_JIT is set" if lazy else ""),
            )
        )
    others = [module.name for module in modules if module.name not in ATTENTION]
    if not triton and len(others) == len(modules):
        raise ChoiceError(
            Finding(
                "--split",
                ", ".join(others) or "no modules",
                f"{' or '.join(ATTENTION)} among the modules: others are not split",
                "leave out --split, or build another --group",
            )
        )
    if others:
        log.info(f"not split, with device code of all archs inside: {', '.join(others)}")


def check_wheel(
    version: str, modules: Sequence[ModuleSpec], triton: bool, for_aiter: bool = False
) -> None:
    """Raise ChoiceError if a wheel has no valid version ("" for no wheel) or no module.

    Warns of the manifest's modules that a wheel never has.

    Args:
        for_aiter: a wheel of modules that AITER's own Python imports.
    """
    if not version:
        return
    if not _VERSION.fullmatch(version):
        expected = "a version as Python writes it: 1.2.3, 1.2.3rc1 or 1.2.3+rocm7"
        raise ChoiceError(Finding("--wheel", version, expected))
    if for_aiter:
        return
    others = [module.name for module in modules if module.name not in ATTENTION]
    if len(others) == len(modules) and not triton:
        raise ChoiceError(
            Finding(
                "--wheel",
                ", ".join(others),
                f"{' or '.join(ATTENTION)} among the modules, or kernels in Triton",
                "qola_torch_wheel packages modules that Python imports "
                f'({docs_url("guide/pybind.md")}), mode = "aiter" those for AITER\'s own Python '
                f"({docs_url('guide/serving.md')})",
            )
        )
    if others:
        words = f"not in the wheel, since Python imports them by themselves: {', '.join(others)}"
        log.warning(f"{words} (qola_torch_wheel packages them: {docs_url('guide/pybind.md')})")


def check_jax(jax: bool, wheel: str, modules: Sequence[ModuleSpec], manifest: Manifest) -> None:
    """Raise ChoiceError if functions for JAX are requested without a wheel of attention.

    Args:
        wheel: version of the wheel, "" for none.
    """
    if not jax:
        return
    names = [module.name for module in modules]
    if manifest.for_aiter:
        found = f'{manifest.place("build", "mode")} is "{AITER}"'
        expected, fix = "a wheel of C++ libraries, whose functions JAX calls", "leave out --jax"
    elif "libmha_fwd" not in names:
        # Gradients also start from the results of the forward function.
        found = ", ".join(names) or "no modules"
        expected = "libmha_fwd among the modules: attention for JAX calls its function"
        fix = "leave out --jax, or build another --group"
    elif not wheel:
        found, expected = "no wheel", "a wheel, which contains the module for JAX"
        fix = "add --wheel VERSION"
    else:
        return
    raise ChoiceError(Finding("--jax", found, expected, fix))


def modules_with_kernels(modules: Sequence[ModuleSpec], manifest: str) -> list[str]:
    """Return the names of the modules with kernels; raise ChoiceError if there is none."""
    names = [module.name for module in modules if module.name in ATTENTION]
    if not names:
        expected = f"one of {', '.join(ATTENTION)}"
        raise ChoiceError(Finding(manifest, "no module with kernels", expected))
    return names
