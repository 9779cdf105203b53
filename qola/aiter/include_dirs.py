"""Where AITER's build looks for headers."""

from __future__ import annotations

from qola.aiter.tree import AiterTree, ModuleConfig


def include_dirs(tree: AiterTree, config: ModuleConfig) -> tuple[str, ...]:
    """Include directories of a module in AITER's order.

    Source: build_module in aiter/jit/core.py; its folder of generated files is left out, because
    no generated source includes another.
    """
    ck_helper = tree.ck_dir.rsplit("/", 1)[0] + "/ck_helper"
    dirs = [ck_helper, f"{tree.ck_dir}/include", f"{tree.ck_dir}/library/include"]
    dirs += [f"{tree.csrc_dir}/include", *config.include_dirs]
    return tuple(dict.fromkeys(dirs))
