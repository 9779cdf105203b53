"""Runs CK's generator, and describes its kernels and dispatch sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from qola.codegen.ck.observe import Recording, UsageError, observe
from qola.codegen.ck.rows import Kernel, Row
from qola.codegen.types import GeneratedSource, KernelInstance
from qola.kernel.selection import VariantFilter
from qola_base.files import sha256_of_text


class RefusedError(Exception):
    """CK's generator or its output cannot serve a request; has the parts of a Finding."""

    def __init__(self, found: str, expected: str, fix: str = "") -> None:
        super().__init__(found)
        self.found, self.expected, self.fix = found, expected, fix


def record(
    script: Path, direction: str, receipt: int, archs: Sequence[str], output: Path, *more: str
) -> Recording:
    """Run CK's generator for a receipt.

    Args:
        archs: values of --targets, if the generator has this option.
        more: further arguments.

    Raises:
        RefusedError: it has no kernels for an arch, or writes files that are not C++ sources.
    """
    arguments = ["-d", direction, "--receipt", str(receipt), *more]
    arguments += ["--output_dir", str(output)]
    try:
        try:
            seen = observe(script, [*arguments, "--targets", ",".join(archs)], output)
        except UsageError:  # older ones have no targets
            seen = observe(script, arguments, output)
    except OSError:  # its file name may contain an arch
        raise
    except Exception as error:  # CK raises plain Exception
        for arch in archs:
            if arch in str(error):
                raise RefusedError(
                    f"architecture {arch}: {error}",
                    "an architecture CK has kernels for",
                    "leave the architecture out, or use an AITER whose CK has kernels for it",
                ) from None
        if isinstance(error, KeyError) and error.args == (direction,):
            raise RefusedError(
                f"direction {direction}, which this CK does not have",
                "a direction of its generator",
                "take it out of add_directions, or use an AITER whose CK has it",
            ) from None
        raise
    if others := [name for name in seen.files if not name.endswith(".cpp") or "/" in name]:
        raise RefusedError(
            f"{script.name} wrote {', '.join(others)}", "only C++ sources, in the output directory"
        )
    return seen


def tags_of(
    archs: Iterable[str], rows: Iterable[Row], kernels: Iterable[Kernel]
) -> dict[str, str | None]:
    """Return CK's name for each arch, None if it has none.

    The first entry of the dispatch that takes a device determines the name.
    """
    known: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if row.arch is not None:
            known.setdefault(row.arch, row.devices or (row.arch,))
    for name in sorted({k.arch for k in kernels if k.arch}, key=lambda name: (-len(name), name)):
        known.setdefault(name, (name,))
    return {
        arch: next((tag for tag, begin in known.items() if arch.startswith(begin)), None)
        for arch in archs
    }


def check_archs(
    filters: Iterable[VariantFilter], tags: Mapping[str, str | None], rows: Sequence[Row]
) -> None:
    """Check that every arch has rows in the receipts; otherwise its dispatch serves no problem."""
    for arch, tag in tags.items():
        if all(row.arch not in (None, tag) for row in rows):
            receipts = sorted({str(one.receipt) for one in filters})
            raise RefusedError(
                f"architecture {arch}: no kernel of receipt {' or '.join(receipts)}, while "
                f"{', '.join(sorted({row.arch or '' for row in rows}))} have some",
                "an architecture CK has kernels for",
                "leave the architecture out, leave the direction out with drop_directions, or use "
                "an AITER whose CK has kernels for it",
            )


def archs_of(kernel: Kernel, tags: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the architectures for which a kernel is compiled."""
    return tuple(arch for arch, tag in tags.items() if kernel.arch in (None, tag))


def kernel_instance(
    direction: str, kernel: Kernel, archs: tuple[str, ...], variants: Iterable[int] = ()
) -> KernelInstance:
    """Describe a kernel as a kernel instance."""
    return KernelInstance(
        name=kernel.name,
        direction=direction,
        role=kernel.role,
        archs=archs,
        sha256=sha256_of_text(kernel.source),
        fields=dict(sorted(kernel.fields.items())),
        variants=tuple(sorted(variants)),
    )


def dispatch_source(
    direction: str, name: str, text: str, archs: Sequence[str], folder: str
) -> GeneratedSource:
    """Describe the text of a dispatch as a generated source."""
    file, digest = f"{folder}/{name}", sha256_of_text(text)
    return GeneratedSource(name, file, digest, direction, "dispatch", tuple(archs))
