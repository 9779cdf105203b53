"""AITER trees whose Composable Kernel is fakes/generate.py, with switches."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from qola.aiter.tree import AiterTree, read_tree

FAKE = Path(__file__).with_name("fakes") / "generate.py"
SWITCHES = (
    *("TARGETS", "RENDER", "NEW_MASKS", "NEW_FIELD", "NO_POOL", "NO_TRAITS", "REWRITTEN"),
    *("KEYWORD", "ENUM", "NAMELESS", "NEEDS_ROWS", "SILENT", "RENAMED"),
)


def make_tree(
    root: Path,
    *on: str,
    ck: str = "3rdparty/composable_kernel",
    own: str = "example/ck_tile/01_fmha",
    named: str = "{CK_DIR}",
) -> AiterTree:
    """Write an AITER tree whose Composable Kernel is the fake with these switches on.

    Args:
        own: the generator's directory in Composable Kernel.
        named: Composable Kernel's directory as the module's entry has it.
    """
    fmha = root / ck / own
    entry = {
        "srcs": ["f'{AITER_CSRC_DIR}/cpp_itfs/mha_fwd.cu'"],
        "blob_gen_cmd": f"f'{named}/{own}/generate.py -d fwd --receipt 600 --output_dir {{{{}}}}'",
    }
    files = {
        root / "aiter/jit/optCompilerConfig.json": json.dumps({"libmha_fwd": entry}),
        root
        / "aiter/jit/core.py": f'CK_DIR = os.environ.get("CK_DIR", f"{{AITER_META_DIR}}/{ck}")',
        root / "csrc/include/mha_fwd.h": "",
        root / "csrc/cpp_itfs/mha_fwd.cu": "",
        root / "hsa/codegen.py": "",
        fmha / "switches.py": "".join(f"{name} = {name in on}\n" for name in SWITCHES),
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copyfile(FAKE, fmha / "generate.py")
    return read_tree(root)
