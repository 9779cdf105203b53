"""AITER trees whose Composable Kernel is fakes/generate.py. Switches change its behaviour."""

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
    *switches: str,
    ck: str = "3rdparty/composable_kernel",
    generator_dir: str = "example/ck_tile/01_fmha",
    entry_ck_dir: str = "{CK_DIR}",
) -> AiterTree:
    """Write an AITER tree whose Composable Kernel is the fake with the given switches on.

    Args:
        generator_dir: directory of generate.py in Composable Kernel.
        entry_ck_dir: Composable Kernel's directory in the module's blob_gen_cmd.
    """
    fmha = root / ck / generator_dir
    script = f"{entry_ck_dir}/{generator_dir}/generate.py"
    entry = {
        "srcs": ["f'{AITER_CSRC_DIR}/cpp_itfs/mha_fwd.cu'"],
        "blob_gen_cmd": f"f'{script} -d fwd --receipt 600 --output_dir {{{{}}}}'",
    }
    files = {
        root / "aiter/jit/optCompilerConfig.json": json.dumps({"libmha_fwd": entry}),
        root
        / "aiter/jit/core.py": f'CK_DIR = os.environ.get("CK_DIR", f"{{AITER_META_DIR}}/{ck}")',
        root / "csrc/include/mha_fwd.h": "",
        root / "csrc/cpp_itfs/mha_fwd.cu": "",
        root / "hsa/codegen.py": "",
        fmha / "switches.py": "".join(f"{name} = {name in switches}\n" for name in SWITCHES),
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copyfile(FAKE, fmha / "generate.py")
    return read_tree(root)
