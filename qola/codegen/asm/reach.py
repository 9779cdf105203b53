"""Whether a library's entry point can come to the code objects it embeds, as far as reading tells.

AITER moves launches between its sources: the function that runs a table's kernels may be compiled
into a library and be called by nothing in it. Then every problem of these kernels is answered with
"no kernel", by a library that was built without an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from qola.aiter.attention import attention_of
from qola.aiter.includes import includes
from qola.aiter.preprocess import without_comments
from qola.aiter.tree import AiterTree, ModuleConfig
from qola.codegen.asm.config_headers import header_name
from qola.errors import Finding

#: Functions that other sources can call: those of C by AITER's macro, and those of C++.
_DEFINED = (
    re.compile(r"^AITER_CTYPES_DEFINE_ENTRYPOINT\w*\(\s*(\w+)", re.MULTILINE),
    re.compile(
        r"^(?!static\b|return\b|using\b)[\w:&*<>]+[\w:&*<> \t]*[ \t\n](\w+)\([^;{}]*\)\s*\{",
        re.MULTILINE,
    ),
)


def unreached(
    tree: AiterTree,
    config: ModuleConfig,
    drop_srcs: Collection[str],
    archs_of: Mapping[str, Sequence[str]],
) -> Iterator[Finding]:
    """Warn of tables whose kernels nothing launches that a library's entry point calls.

    Args:
        archs_of: the architectures with kernels, by module of `hsa/codegen.py`.
    """
    texts = {
        src: without_comments(tree.text(src))
        for src in config.srcs
        if (tree.root / src).is_file() and src.rpartition("/")[2] not in drop_srcs
    }
    entry = f"mha_{attention_of(config.name).direction}"
    entries = [src for src, text in texts.items() if re.search(rf"^float\s+{entry}\(", text, re.M)]
    for module, archs in sorted(archs_of.items()):
        users = [
            src
            for src, text in texts.items()
            if any(name == header_name(module) for name, _ in includes(text))
        ]
        if not archs or not entries or not users or set(users) & set(entries):
            continue
        defined = {
            name
            for src in users
            for pattern in _DEFINED
            for name in pattern.findall(texts[src])
            if not name.startswith("AITER_")
        }
        if any(set(re.findall(r"\w+", texts[src])) & defined for src in entries):
            continue
        yield Finding(
            place=", ".join(users),
            found=f"{', '.join(sorted(defined)) or 'no function'}, which {entry} in "
            f"{', '.join(entries)} does not call: the kernels of {module} for {', '.join(archs)} "
            "are never launched, and their problems are answered with -1",
            expected="an entry point that launches what it embeds, or hsa_subdirs without "
            f"{module}",
            fix="use an AITER whose entry point calls it (a fork or a patch may), or remove these "
            "architectures",
            severity="warning",
        )
