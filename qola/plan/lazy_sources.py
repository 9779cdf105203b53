"""Sources of a module's lazy library, and of the kernel libraries it loads."""

from __future__ import annotations

import re
from collections.abc import Sequence

from qola.codegen.types import KernelInstance
from qola.files import sha256_of_text
from qola.folder import Folder
from qola.plan.model import PlannedFile
from qola.plan.stubs import Interface, Stub, entry_source, interface, stubs_source


class LazySources:
    """Writes the sources of a module's lazy library, group by group."""

    def __init__(self, output: Folder, module: str) -> None:
        self.stubs: list[PlannedFile] = []
        self._output = output
        self._module = module
        self._rows = 0
        self._entries: dict[str, PlannedFile] = {}

    @property
    def entry_sources(self) -> tuple[PlannedFile, ...]:
        """The entry sources written, by name."""
        return tuple(sorted(self._entries.values(), key=lambda source: source.name))

    def add(
        self,
        group: str,
        instances: Sequence[KernelInstance],
        texts: Sequence[str],
        roots: Sequence[tuple[str, ...]],
    ) -> list[str]:
        """Write stubs and entry sources of a group; return the entry source of each instance.

        Args:
            instances: the group's kernel instances, each of which gets a row for each arch.

        Raises:
            CodegenError: a source has a form that is not served.
        """
        stubs = []
        names = []
        for kernel, text in zip(instances, texts, strict=True):
            found = interface(kernel.name, text)
            stubs.append(Stub(self._rows, len(kernel.archs), found))
            self._rows += len(kernel.archs)
            names.append(self._entry(kernel.role, found))
        # Thousands of sources include the same: one of each kind is read for it.
        kinds: dict[tuple[str, ...], str] = {}
        for names_of, text in zip(roots, texts, strict=True):
            kinds.setdefault(names_of, text)
        text = stubs_source(stubs, kinds.values())
        self.stubs.append(self._write(group, f"stubs/{group}.cpp", text))
        return names

    def _entry(self, role: str, of: Interface) -> str:
        text = entry_source(of)
        if text not in self._entries:
            arch = re.search(r"ck_tile::(\w+)_t", of.written)
            name = f"{role}_{arch[1]}" if arch else role
            if any(source.name == name for source in self._entries.values()):
                # Of several for a role and an arch, the first in the plan has the plain name.
                name = f"{name}_{sha256_of_text(text)[:8]}"
            self._entries[text] = self._write(name, f"entries/{name}.cpp", text)
        return self._entries[text].name

    def _write(self, name: str, file: str, text: str) -> PlannedFile:
        place = f"{self._module}/{file}"
        return PlannedFile(name, place, self._output.write(place, text))
