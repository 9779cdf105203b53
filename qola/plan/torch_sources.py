"""Which sources of a torch module share PyTorch's precompiled headers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from qola.aiter.includes import include_dirs, reaching
from qola.aiter.tree import AiterTree
from qola.common.folder import Folder
from qola.plan.generate import GeneratedModule

#: Directories of PyTorch's headers. AITER has headers below torch/, too, which its tree has.
_HEADERS = ("ATen/", "c10/", "torch/")
#: Flags that PyTorch's headers do not depend on: options of LLVM, warnings, and macros other than
#: those of PyTorch, pybind11 and Python. Clang refuses a header that was precompiled with other
#: flags of the language.
_WITHOUT_EFFECT = re.compile(
    r"-mllvm(=.*)?|-W[^lp].*|-ftemplate-depth=\d+"
    r"|-[DU](?!(AT|C10|CAFFE2|PY|PYBIND11|TORCH|USE)_)\w+(=.*)?"
)


def sources_with_torch(tree: AiterTree, module: GeneratedModule, folder: Folder) -> tuple[str, ...]:
    """Return the names of the sources that include PyTorch, with flags that do not change it.

    Args:
        folder: the module's directory.
    """
    config = module.config
    texts: dict[str, str] = defaultdict(str)
    for source in (*module.kernels.sources, *module.kernels.tables):
        # Files of several archs have the same name, and a batch reads only its own.
        files = module.batch_files.get(Path(source.name).stem, ()) or (source.file,)
        texts[source.name] += "\n".join(folder.text(file) for file in files)
    found = reaching(tree.root, include_dirs(tree, config), texts, _HEADERS)
    names = {Path(s.name).stem for s in module.kernels.sources if s.name in found}
    copts = module.source_copts
    return tuple(
        sorted(n for n in names if _without_effect((*config.flags_hip, *copts.get(n, ()))))
    )


def _without_effect(flags: Iterable[str]) -> bool:
    # The next argument is the value of -mllvm.
    pairs = pairwise(("", *flags))
    return all(_WITHOUT_EFFECT.fullmatch(flag) for before, flag in pairs if before != "-mllvm")
