"""A small AITER tree, a patch of it, and git."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

CONFIG = {"libmha_fwd": {"blob_gen_cmd": ["{AITER_META_DIR}/csrc/cpp_itfs/mha_fwd_generate.py"]}}
GENERATOR = "3rdparty/composable_kernel/example/ck_tile/01_fmha/generate.py"
FILES = {
    "aiter/jit/optCompilerConfig.json": json.dumps(CONFIG),
    "csrc/include/mha_fwd.h": "// one\n",
    GENERATOR: "# CK\n",
}
PATCH = """\
--- a/csrc/include/mha_fwd.h
+++ b/csrc/include/mha_fwd.h
@@ -1 +1 @@
-// one
+// two
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def git(directory: Path, *args: str) -> str:
    """Run git in a directory, also where GIT_DIR names another repository; what it prints."""
    command = ["env", "-u", "GIT_DIR", "git", "-c", "user.name=t", "-c", "user.email=t@t.invalid"]
    run = subprocess.run(
        [*command, *args], cwd=directory, check=True, capture_output=True, text=True
    )
    return run.stdout.strip()
