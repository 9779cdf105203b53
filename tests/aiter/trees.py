"""A small AITER tree, and a patch of it."""

from __future__ import annotations

import json

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
