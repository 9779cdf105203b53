"""Reads the code objects of an AITER tree, and checks what can be built from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path

from qola.aiter.proven_faults import faults_by_digest
from qola.report.occupancy import occupancy
from qola_base.code_object.elf import explain_errors
from qola_base.code_object.reader import CodeObject, parse_code_object
from qola_base.errors import Finding, QolaError, visible
from qola_base.progress import Pace, log
from qola_lab.trees.check import Check
from qola_lab.trees.examine import examine
from qola_lab.trees.report import HealthError, KernelHealth, TreeHealth


class Reader:
    """Reads trees; a code object with a known digest is not parsed again."""

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        """Select code objects.

        Args:
            patterns: of their keys, with * and ?; () for all.
        """
        self._patterns = tuple(patterns)
        self._read: dict[str, tuple[KernelHealth, ...] | str] = {}

    def read(self, name: str, root: Path) -> TreeHealth:
        """Read a tree.

        A tree whose configuration qola cannot read only has code objects.

        Raises:
            HealthError: it has no such code object.
        """
        in_wheel = root / "aiter_meta/hsa"
        base = in_wheel if in_wheel.is_dir() else root / "hsa"
        log.info(f"{name}: checking the directions")
        checks = examine(root).checks
        # The facts of a tree that cannot be read are empty.
        version = checks[0].facts.get("version", "")
        kernels: list[KernelHealth] = []
        unread: dict[str, str] = {}
        files = list(self._files(base))
        pace = Pace()
        for number, (key, path) in enumerate(files):
            pace.report(f"{name}: reading {len(files)} code objects", number / len(files))
            found = self._kernels(path)
            if isinstance(found, str):
                unread[key] = found
            else:
                kernels += [replace(kernel, key=key) for kernel in found]
        if not files:
            place, expected = str(base), "a name such as hsa/gfx950/fmha_v3_fwd/*"
            words = f"no code object {' '.join(self._patterns)}".strip()
            raise HealthError(Finding(place, words, expected, "leave --kernels out"))
        return TreeHealth(name, version, tuple(filter(_is_shown, checks)), tuple(kernels), unread)

    def _files(self, base: Path) -> Iterator[tuple[str, Path]]:
        """Yield key and path of each selected code object, sorted."""
        for path in sorted(base.rglob("*.co")):
            key = f"hsa/{path.relative_to(base).as_posix()}"
            if not self._patterns or any(fnmatchcase(key, one) for one in self._patterns):
                yield key, path

    def _kernels(self, path: Path) -> tuple[KernelHealth, ...] | str:
        """Return the kernels of a code object without their key, or the error."""
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._read:
            try:
                with explain_errors(Finding(path.name, "not a code object", "an ELF file")):
                    self._read[digest] = tuple(_kernels(parse_code_object(data)))
            except QolaError as error:
                self._read[digest] = visible(error.findings[0].found)
        return self._read[digest]


def _is_shown(check: Check) -> bool:
    """Whether the report has a check: levels, assembly kernels, and whatever is not ok."""
    return check.name in ("tree", "level", "v3") or check.status != "ok"


def _kernels(code: CodeObject) -> Iterator[KernelHealth]:
    proven = tuple(fault.name for fault in faults_by_digest().get(code.sha256, ()))
    for kernel in code.kernels.values():
        registers, lds = kernel.descriptor.vgprs, kernel.resources.lds
        found = occupancy(code.arch, registers, lds, kernel.max_block)
        waves, limit = found or (None, "")
        yield KernelHealth(
            key="",
            arch=code.arch,
            sha256=code.sha256,
            symbol=kernel.symbol,
            bytes=code.size,
            workgroup=kernel.max_block,
            waves=waves,
            limit=limit,
            proven=proven,
            **asdict(kernel.resources),
        )
