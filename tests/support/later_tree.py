"""A small AITER tree like later versions, whose sources load assembly kernels.

The tree lacks Composable Kernel. Its C++ is never compiled; it contains the text that plans read.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from pathlib import Path

from tests.support.folders import write

COLUMNS = "dtype,hdim_q,hdim_v,mask,mode,bf16_cvt,knl_name,co_name"

#: Like AITER's script: groups tables by name, and prints their rows with pandas.
_SCRIPT = """\
import argparse, glob, os, sys
from collections import defaultdict
from io import StringIO
import numpy as np
import pandas as pd

pd.set_option("future.no_silent_downcasting", True)
here = os.path.dirname(os.path.abspath(__file__))
wanted = os.environ["AITER_GPU_ARCHS"].split(";")
parser = argparse.ArgumentParser()
parser.add_argument("-m", "--module", required=True)
parser.add_argument("-o", "--output_dir", required=True)
args = parser.parse_args()
groups = defaultdict(list)
for folder in glob.glob(f"{here}/*/"):
    arch = os.path.basename(os.path.normpath(folder))
    for path in glob.glob(f"{folder}/{args.module}/**/*.csv", recursive=True):
        groups[os.path.basename(path).split(".")[0]].append((path, arch))
text = "#pragma once\\n"
for name, members in groups.items():
    frames = []
    for path, arch in members:
        with open(path, encoding="utf-8-sig") as file:
            frame = pd.read_csv(StringIO(file.read()))
        assert {"knl_name", "co_name"}.issubset(frame.columns.tolist())
        frame["arch"] = arch
        frames.append(frame)
    frame = pd.concat(frames, ignore_index=True).fillna(0).infer_objects(copy=False)
    first = frame.iloc[0]
    for column in frame.columns.tolist():
        kind = "int" if isinstance(first[column], (int, float, np.integer)) else "std::string"
        text += f"// {name}.{column}: {kind}\\n"
    text += f"static CFG cfg_{name} = {{\\n"
    for row in frame.itertuples(index=False):
        if row.arch in wanted:
            text += f"    {row.arch}, {row.dtype}, {int(row.hdim_q)}, {row.co_name}\\n"
    text += "};\\n"
with open(f"{args.output_dir}/asm_{args.module}_configs.hpp", "w") as file:
    file.write(text)
"""
_ENTRY = {
    "flags_extra_cc": [],
    "flags_extra_hip": ["'-DFAST=1'"],
    "extra_include": ["f'{CK_DIR}/example/ck_tile/01_fmha'"],
    "is_python_module": "False",
    "torch_exclude": "True",
}
_GENERATE = "f'{CK_DIR}/example/ck_tile/01_fmha/generate.py -d %s --receipt 600 --output_dir {{}}'"
_FILES = {
    "aiter/jit/core.py": "import os\n",
    "aiter/jit/optCompilerConfig.json": json.dumps(
        {
            "libmha_fwd": {
                **_ENTRY,
                "srcs": [
                    "f'{AITER_CSRC_DIR}/cpp_itfs/mha_fwd.cu'",
                    "f'{AITER_CSRC_DIR}/cpp_itfs/mha_fwd_split.cu'",
                ],
                "blob_gen_cmd": [_GENERATE % "fwd", _GENERATE % "fwd_splitkv"],
            },
            "libmha_bwd": {
                **_ENTRY,
                "srcs": ["f'{AITER_CSRC_DIR}/cpp_itfs/mha_bwd.cu'"],
                "blob_gen_cmd": [_GENERATE % "bwd"],
            },
        }
    ),
    "csrc/include/aiter_hip_common.h": "#pragma once\n#include <string>\n",
    "csrc/include/mha_fwd.h": '#pragma once\n#include "aiter_hip_common.h"\n'
    "namespace ck_tile { struct stream_config { void* stream; }; }\n"
    "namespace aiter {\nstruct mha_fwd_args { int hdim_q; };\n"
    "float mha_fwd(mha_fwd_args args, const ck_tile::stream_config& s);\n} // namespace aiter\n",
    "csrc/include/mha_bwd.h": '#pragma once\n#include "aiter_hip_common.h"\n'
    "namespace ck_tile { struct stream_config { void* stream; }; }\n"
    "namespace aiter {\nstruct mha_bwd_args { int hdim_q; };\n"
    "float mha_bwd(mha_bwd_args args, const ck_tile::stream_config& s);\n} // namespace aiter\n",
    "csrc/cpp_itfs/mha_fwd.cu": '#include "mha_fwd.h"\n#if FAV3_ON\n'
    '#include "asm_fmha_v3_fwd_configs.hpp"\n#endif\n'
    '#if FAV1250_ON\nextern "C" int with_sink(int hdim);\n#endif\nnamespace aiter {\n'
    "float mha_fwd(mha_fwd_args args, const ck_tile::stream_config& s)\n{\n"
    "#if FAV1250_ON\n    return with_sink(args.hdim_q);\n#endif\n    return -1;\n}\n}\n",
    "csrc/cpp_itfs/mha_fwd_split.cu": '#include "mha_fwd.h"\nnamespace aiter {\n'
    "float mha_fwd_splitkv(mha_fwd_splitkv_args args)\n{\n    return -1;\n}\n}\n",
    "csrc/cpp_itfs/mha_bwd.cu": '#include "mha_bwd.h"\n#include "asm_fmha_v3_bwd_configs.hpp"\n'
    "namespace aiter {\nfloat mha_bwd(mha_bwd_args args, const ck_tile::stream_config& s)\n{\n"
    "#if ONLY_FAV3\n    return args.hdim_q;\n#endif\n    return -1;\n}\n}\n",
    "csrc/py_itfs_cu/with_sink.cu": '#include "aiter_hip_common.h"\n'
    '#include "asm_fmha_fwd_bf16_configs.hpp"\n'
    "AITER_CTYPES_DEFINE_ENTRYPOINT_VOID(\n    with_sink,\n    (int hdim), (hdim))\n{\n}\n",
    "hsa/codegen.py": _SCRIPT,
}
#: Rows by table; a row ends with the name of the kernel's file, without suffix.
_TABLES = {
    "gfx942/fmha_v3_fwd/fmha_fwd.csv": (
        "bf16,128,128,0,0,1,k1,fwd_128",
        "bf16,128,128,2,0,1,k2,fwd_128_causal",
        "bf16,128,128,0,1,1,k3,fwd_128_group",
    ),
    "gfx950/fmha_v3_fwd/fmha_fwd.csv": (
        "bf16,128,128,0,0,0,k1,fwd_128",
        "bf16,192,128,0,0,0,k4,fwd_192",
        "fp8bf16,128,128,0,0,0,k5,fwd_128_fp8",
    ),
    "gfx1250/fmha_fwd_bf16/fmha_fwd_bf16.csv": (
        "bf16,64,64,1,,,k6,sink_64",
        "bf16,128,128,1,,,k7,sink_128",
    ),
    "gfx942/fmha_v3_bwd/fmha_bwd_odo.csv": (
        "bf16,128,128,0,0,3,o1,odo_128",
        "fp16,64,64,0,0,3,o2,odo_64",
    ),
    "gfx942/fmha_v3_bwd/fmha_bwd_dqdkdv.csv": (
        "bf16,128,128,0,0,3,m1,bwd_128",
        "bf16,128,128,1,0,3,m2,bwd_128_causal",
        "fp16,64,64,0,0,3,m3,bwd_64_fp16",
    ),
    "gfx942/fmha_v3_bwd/fmha_bwd_dq_convert.csv": ("bf16,128,128,0,0,3,c1,convert_128",),
    "gfx942/fmha_v3_bwd/fmha_bwd_dq_shuffle.csv": (),
    "gfx950/fmha_v3_bwd/fmha_bwd_dq_shuffle.csv": ("bf16,128,128,0,0,3,s1,shuffle_128",),
}
#: Subdirectories that contain the files of a row, instead of the table's directory.
_BY_DEVICE = {"gfx942/fmha_v3_fwd": ("MI300", "MI308")}

SINK_SRCS = """srcs = [
    "f'{AITER_CSRC_DIR}/cpp_itfs/mha_fwd.cu'",
    "f'{AITER_CSRC_DIR}/cpp_itfs/mha_fwd_split.cu'",
    "f'{AITER_CSRC_DIR}/py_itfs_cu/with_sink.cu'",
]
"""


def write_later_tree(root: Path) -> Path:
    """Write the tree below a directory, and return the directory."""
    files = dict(_FILES)
    for table, rows in _TABLES.items():
        folder, _, name = table.rpartition("/")
        lines = [COLUMNS, *(f"{row}.co" for row in rows)]
        assert len({line.count(",") for line in lines}) == 1, name
        files[f"hsa/{table}"] = "".join(f"{line}\n" for line in lines)
        for row in rows:
            for subdirectory in _BY_DEVICE.get(folder, (".",)):
                file = posixpath.normpath(
                    f"hsa/{folder}/{subdirectory}/{row.rpartition(',')[2]}.co"
                )
                files[file] = f"code of {file}"
    return write(root, files)


def add_modules(root: Path, entries: Mapping[str, Mapping[str, object]]) -> None:
    """Add module entries to the tree's configuration."""
    file = root / "aiter/jit/optCompilerConfig.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **entries}), "utf-8")


def embed_code_objects(root: Path) -> None:
    """Add AITER's macro for embedded code objects to the tree's header."""
    with (root / "csrc/include/aiter_hip_common.h").open("a") as header:
        header.write("#ifdef AITER_EMBEDDED_HSA_MAP\n#endif\n")


_CORE = """\
def build_module(flags_extra_cc):
    enable_ck = int(os.environ.get("ENABLE_CK", "1"))
    if not any("ENABLE_CK" in f for f in flags_extra_cc):
        flags_cc.append(f"-DENABLE_CK={enable_ck}")
"""


def write_pybind_tree(root: Path) -> Path:
    """Write a later tree without Composable Kernel, whose modules do not need PyTorch."""
    write_later_tree(root)
    (root / "aiter/jit/core.py").write_text(_CORE, "utf-8")
    header = root / "csrc/include/aiter_hip_common.h"
    header.write_text('#pragma once\n#if ENABLE_CK\n#include "ck_tile/core.hpp"\n#endif\n', "utf-8")
    for name, entry in {
        "custom": "TORCH_EXTENSION_NAME",
        "literal": "module_literal",
        "other": "module_another",
    }.items():
        text = '#include "aiter_hip_common.h"\n#include <pybind11/pybind11.h>\n'
        text += f"// PYBIND11_MODULE(said_in_a_comment, m)\nPYBIND11_MODULE({entry}, m) {{}}\n"
        (root / f"csrc/py_itfs_cu/{name}.cu").write_text(text, "utf-8")
        source = f"f'{{AITER_CSRC_DIR}}/py_itfs_cu/{name}.cu'"
        add_modules(root, {f"module_{name}": {"srcs": [source]}})
    return root
