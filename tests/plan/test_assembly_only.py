"""Plans of libraries without Composable Kernel, from manifests like TransformerEngine's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree, read_tree
from qola.manifest.load import loads
from qola.plan.inputs import watched_dirs
from qola.plan.model import Plan
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola.repository.build_files import manifest_build_file
from qola_base.errors import AiterError, Finding, PlanError, QolaError
from tests.support.later_tree import SINK_SRCS, write_later_tree
from tests.support.plans import plan_text

#: Keys of TransformerEngine's qola_manifest_gfx1250.toml, with file names of the small tree.
GFX1250 = f"""\
[qola]
namespace = "te_v3"
rocm_versions = ["7.2"]

[build]
architectures = ["gfx1250"]

[[modules]]
name = "libmha_fwd"
mode = "cpp_itfs"
drop_directions = ["fwd", "fwd_splitkv", "batch_prefill"]
flags_extra_cc = ["'-DFAV3_ON=1'", "'-DENABLE_CK=0'", "'-DFAV1250_ON=1'"]
hsa_subdirs = ["fmha_fwd_bf16"]
{SINK_SRCS}
blob_gen_cmd = [
    "f'{{AITER_META_DIR}}/hsa/codegen.py -m fmha_fwd_bf16 --output_dir {{{{}}}}'",
]
"""
BWD = """
[[modules]]
name = "libmha_bwd"
mode = "cpp_itfs"
drop_directions = ["bwd"]
flags_extra_cc = ["'-DONLY_FAV3=1'", "'-DENABLE_CK=0'"]
"""
BACKWARD_HEAD = """\
[build]
architectures = ["gfx942"]
mode = "cpp_itfs"
"""

PlanFunction = Callable[[str], Plan]


@pytest.fixture
def tree(tmp_path: Path) -> AiterTree:
    return read_tree(write_later_tree(tmp_path / "tree"))


@pytest.fixture
def plan(tree: AiterTree, tmp_path: Path) -> PlanFunction:
    return lambda text: plan_text(text, tree, tmp_path / "out")


def first_finding(call: Callable[[], object], kind: type[QolaError]) -> Finding:
    with pytest.raises(kind) as error:
        call()
    return error.value.findings[0]


def test_transformer_engines_manifest(plan: PlanFunction, tmp_path: Path) -> None:
    """Prevents: a manifest of ROCm/QoLA that is refused, or that builds another library."""
    result = plan(GFX1250)
    (module,) = result.modules
    assert (result.archs, result.kernels, result.units) == (("gfx1250",), (), ())
    assert module.library == "te_v3_libmha_fwd.so"
    assert [(entry.name, entry.parameters) for entry in module.entries] == [("mha_fwd", 2)]
    # mha_fwd_split.cu is left out: its direction only has kernels of Composable Kernel.
    assert [source.name for source in module.sources] == ["mha_fwd", "with_sink"]
    assert {"-DFAV3_ON=1", "-DENABLE_CK=0", "-DFAV1250_ON=1"} <= set(module.copts)
    assert not [flag for flag in module.copts if "FAV2_ON" in flag]
    assert [table.file for table in module.asm_tables] == [
        f"libmha_fwd/include/asm_{name}_configs.hpp" for name in ("fmha_fwd_bf16", "fmha_v3_fwd")
    ]
    for table in module.asm_tables:
        assert (tmp_path / "out" / table.file).is_file()
    assert [code_object.key for code_object in module.code_objects] == [
        f"hsa/gfx1250/fmha_fwd_bf16/{name}.co" for name in ("sink_128", "sink_64")
    ]
    (warning,) = result.warnings
    assert warning.found == "gfx1250, which no test of qola builds for"
    assert Plan.from_json(result.to_json()) == result


@pytest.mark.parametrize(
    "text", [BWD, BWD.replace("flags_extra_cc", "add_flags_extra_cc").replace("'", "")]
)
def test_backward_library_without_ck(plan: PlanFunction, text: str) -> None:
    """Prevents: an error because the entry of libmha_bwd calls CK's generator, which is dropped."""
    result = plan(BACKWARD_HEAD + text)
    (module,) = result.modules
    assert [entry.name for entry in module.entries] == ["mha_bwd"]
    assert "-DONLY_FAV3=1" in module.copts
    assert len(module.code_objects) == 6
    assert result.warnings == ()


def test_inputs_and_watched_directories(plan: PlanFunction, tree: AiterTree) -> None:
    """Prevents: a changed table, code object or script that does not cause a new plan."""
    result = plan(GFX1250)
    assert {
        "hsa/codegen.py",
        "hsa/gfx942/fmha_v3_fwd/fmha_fwd.csv",
        "hsa/gfx1250/fmha_fwd_bf16/fmha_fwd_bf16.csv",
        "hsa/gfx1250/fmha_fwd_bf16/sink_64.co",
        "csrc/py_itfs_cu/with_sink.cu",
    } <= set(result.inputs)
    watched = watched_dirs(resolve(Request("m", loads(GFX1250, file="m.toml"), tree)))
    assert {"hsa/gfx1250/fmha_fwd_bf16", "hsa/gfx1250/fmha_v3_fwd"} <= {*watched}


def test_build_file_lists_assembly_tables(plan: PlanFunction) -> None:
    """Prevents: planned tables or code objects that the compile actions do not get."""
    result = plan(GFX1250)
    text = manifest_build_file(result, source="m.toml", aiter="aiter")
    assert '"libmha_fwd/include/asm_fmha_v3_fwd_configs.hpp",' in text
    assert "asm_tables = [" in text
    assert '"@aiter//:hsa/gfx1250/fmha_fwd_bf16/sink_64.co": "hsa/gfx1250' in text
    assert "asm_domain" not in text


def test_kernels_without_a_launch(plan: PlanFunction, tree: AiterTree) -> None:
    """Prevents: a library without usable kernels, which returns -1 for every problem."""
    source = tree.root / "csrc/cpp_itfs/mha_fwd.cu"
    source.write_text(source.read_text("utf-8").replace("with_sink", "with_nothing"), "utf-8")
    finding = first_finding(lambda: plan(GFX1250), PlanError)
    assert finding.severity == "error"
    assert finding.found.startswith("with_sink, which mha_fwd in csrc/cpp_itfs/mha_fwd.cu does not")
    assert finding.fix.startswith("leave libmha_fwd out of the manifest, or use another commit")
    # The library is useful if it launches other kernels.
    both = GFX1250.replace('["gfx1250"]', '["gfx942", "gfx1250"]')
    both = both.replace('hsa_subdirs = ["fmha_fwd_bf16"]\n', "")
    result = plan(both)
    (warning,) = [w for w in result.warnings if "never launched" in w.found]
    assert warning.severity == "warning"


NO_FLAGS = BWD.replace("""flags_extra_cc = ["'-DONLY_FAV3=1'", "'-DENABLE_CK=0'"]""", "")
CK_KERNEL = (
    "bwd_dq_dk_dv.fp16.batch.d32x32.gfx9.b32x128x32x32x32x32x64x32x32_r1x4x1_r4x1x1_r2x2x1"
    "_w16x16x32_w16x16x16_o1_maxq0"
)


@pytest.mark.parametrize(
    ("text", "kind", "place", "found", "fix"),
    [
        (
            GFX1250.replace('hsa_subdirs = ["fmha_fwd_bf16"]', 'hsa_subdirs = ["pa"]'),
            PlanError,
            "m.toml:13 [[modules]].hsa_subdirs",
            "pa, whose code objects nothing in libmha_fwd launches",
            'hsa_subdirs = ["fmha_fwd_bf16", "fmha_v3_fwd"]',
        ),
        (
            BACKWARD_HEAD + NO_FLAGS,
            AiterError,
            "/3rdparty/composable_kernel",
            "no Composable Kernel, which libmha_bwd needs",
            "git clone --recurse-submodules ",
        ),
        (
            f'{BACKWARD_HEAD}{BWD}[[kernels]]\nnames = ["{CK_KERNEL}"]\n',
            QolaError,
            "",
            "ENABLE_CK=0",
            "",
        ),
    ],
    ids=("code objects without a launch", "tree without CK", "kernel of CK"),
)
def test_unbuildable_libraries_are_refused(
    plan: PlanFunction, text: str, kind: type[QolaError], place: str, found: str, fix: str
) -> None:
    """Prevents: a library with unused code objects, or without the kernels that it requests."""
    finding = first_finding(lambda: plan(text), kind)
    assert finding.place.endswith(place)
    assert found in finding.found
    assert fix in finding.fix
