"""A small AITER tree, a patch for it, and an index from which pip installs its wheel."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

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


def write_wheel(index: Path, package: str, version: str) -> Path:
    """Write a wheel of the tree, laid out like AITER's wheels, into a directory."""
    stem = f"{package.replace('-', '_')}-{version}"
    files = {
        name if name.startswith("aiter/") else f"aiter_meta/{name}": FILES[name] for name in FILES
    }
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    wheel = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    parts = {"METADATA": metadata, "WHEEL": wheel, "RECORD": ""}
    files |= {f"{stem}.dist-info/{name}": text for name, text in parts.items()}
    index.mkdir(exist_ok=True)
    path = index / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def use_index(monkeypatch: pytest.MonkeyPatch, index: Path) -> None:
    """Restrict pip in this process to the wheels of one directory."""
    pytest.importorskip("pip", reason="needs pip for this Python")
    settings = {"NO_INDEX": "1", "FIND_LINKS": str(index), "CONFIG_FILE": "/dev/null"}
    for key, value in settings.items():
        monkeypatch.setenv(f"PIP_{key}", value)
