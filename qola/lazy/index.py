"""The kernels of a lazy library: the index for compiles, and the table in the library.

A kernel's code digest covers all inputs except the compiler: source, headers, flags, arch, and the
runtime's ABI. docs/guide/lazy.md describes the formats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qola_base.files import sha256_of_text

ABI = 1
"""QOLA_KERNEL_ABI of runtime/lazy/qola_kernel.h."""

FILE = "kernels.index"
"""Name of the index in the directory of a module's sources."""

LINK_SCRIPT = "link.ld"
"""Name of the linker script there, passed to each link with -Wl,-T."""

_HEAD = "// Written by qola (qola/lazy/index.py); do not edit."


@dataclass(frozen=True)
class Headers:
    """A set of headers of kernel instances.

    Attributes:
        dirs: include directories in search order, relative to the root.
        files: digest of each header by its path relative to the root.
    """

    dirs: tuple[str, ...]
    files: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Digest of the headers and the include directories."""
        lines = [*self.dirs, *(f"{file}\t{digest}" for file, digest in sorted(self.files.items()))]
        return sha256_of_text("\n".join(lines) + "\n")


@dataclass(frozen=True)
class Kernel:
    """A kernel instance for one arch.

    `package` is its kernel group in the plan, which has its flags; `source` is a digest.
    """

    name: str
    arch: str
    package: str
    headers: str
    entry: str
    source: str


@dataclass(frozen=True)
class Index:
    """All that a lazy library may ask for, and how it is compiled.

    Attributes:
        root: directory of the sources, relative to the library's directory.
        identity: the compiler that the library's own kernels are compiled with, one line.
        link_flags: flags of every link; HIP's runtime comes after them.
        link_script: digest of the linker script.
        entries: digest of each entry source, by name.
        kernels: in the order in which stubs count them.
    """

    module: str
    root: str
    identity: str
    flags: tuple[str, ...]
    arch_flags: Mapping[str, tuple[str, ...]]
    package_flags: Mapping[str, tuple[str, ...]]
    headers: Mapping[str, Headers]
    link_flags: tuple[str, ...]
    link_script: str
    entries: Mapping[str, str]
    kernels: tuple[Kernel, ...]

    def flags_of(self, kernel: Kernel) -> tuple[str, ...]:
        """Flags of a kernel's compile, without include directories and the file names."""
        return (
            *self.flags,
            *self.arch_flags.get(kernel.arch, ()),
            *self.package_flags.get(kernel.package, ()),
            f"--offload-arch={kernel.arch}",
            f"-cuid={kernel.name}",
        )


def code_digests(index: Index) -> list[str]:
    """Return the code digest of each kernel."""
    headers = {name: found.digest for name, found in index.headers.items()}
    link = sha256_of_text("\n".join((*index.link_flags, index.link_script)))
    return [
        sha256_of_text(
            f"qola kernel code {ABI}\n"
            f"source {kernel.source}\n"
            f"entry {index.entries[kernel.entry]}\n"
            f"headers {headers[kernel.headers]}\n"
            f"flags {sha256_of_text(chr(10).join(index.flags_of(kernel)))}\n"
            f"link {link}\n"
        )
        for kernel in index.kernels
    ]


def render_index(index: Index) -> str:
    """Return the text of kernels.index: one entry per line, with fields separated by tabs."""
    lines: list[Sequence[str]] = [
        ("qola-kernels", "1"),
        ("module", index.module),
        ("abi", str(ABI)),
        ("identity", index.identity),
        *(("flag", flag) for flag in index.flags),
        *(("arch-flag", a, f) for a in sorted(index.arch_flags) for f in index.arch_flags[a]),
        *(
            ("package-flag", p, f)
            for p in sorted(index.package_flags)
            for f in index.package_flags[p]
        ),
    ]
    for name, headers in sorted(index.headers.items()):
        lines += [("dir", name, d) for d in headers.dirs]
        lines += [("header", name, f, digest) for f, digest in sorted(headers.files.items())]
    lines += [("link-flag", flag) for flag in index.link_flags]
    lines += [("link-script", LINK_SCRIPT, index.link_script)]
    lines += [("entry", name, digest) for name, digest in sorted(index.entries.items())]
    lines += [
        ("kernel", k.name, k.arch, k.package, k.headers, k.entry, k.source, code)
        for k, code in zip(index.kernels, code_digests(index), strict=True)
    ]
    return "".join("\t".join(line) + "\n" for line in lines)


def render_table(index: Index) -> str:
    """Return the C++ source with the library's table of kernels."""
    kernels = [
        f"    {{{_text(k.name)}, {_text(k.arch)}, {_text(code)}}},"
        for k, code in zip(index.kernels, code_digests(index), strict=True)
    ]
    digest = sha256_of_text(render_index(index))
    module = ", ".join(_text(t) for t in (index.module, index.root, index.identity, digest))
    return "\n".join(
        [
            _HEAD,
            '#include "qola_lazy.h"',
            "",
            "namespace qola_lazy {",
            "namespace {",
            "const Kernel kernels[] = {",
            *kernels,
            "};",
            "} // namespace",
            "",
            f"const Module module = {{{module}, kernels, {len(kernels)}}};",
            f"std::atomic<const qola_kernel_function*> loaded[{len(kernels)}] = {{}};",
            "",
            "} // namespace qola_lazy",
            "",
        ]
    )


def _text(value: str) -> str:
    """Return a C++ string literal; for plain text it equals JSON's."""
    return json.dumps(value)
