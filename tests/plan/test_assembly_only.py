"""Plans of libraries without Composable Kernel, from a manifest as TransformerEngine has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree, read_tree
from qola.errors import AiterError, Finding, PlanError, QolaError
from qola.manifest.load import loads
from qola.plan.inputs import watched_dirs
from qola.plan.model import Plan
from qola.plan.request import Request
from qola.plan.resolve import resolve
from qola.repository.build_files import manifest_build_file
from tests.support.later_tree import SINK_SRCS, write_later_tree
from tests.support.plans import plan_text

#: The keys of TransformerEngine's qola_manifest_gfx1250.toml, with the names of the small tree.
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
ALONE = """\
[build]
architectures = ["gfx942"]
mode = "cpp_itfs"
"""

Planning = Callable[[str], Plan]


@pytest.fixture
def tree(tmp_path: Path) -> AiterTree:
    return read_tree(write_later_tree(tmp_path / "tree"))


@pytest.fixture
def plan(tree: AiterTree, tmp_path: Path) -> Planning:
    return lambda text: plan_text(text, tree, tmp_path / "out")


def found_by(call: Callable[[], object], kind: type[QolaError]) -> Finding:
    with pytest.raises(kind) as error:
        call()
    return error.value.findings[0]


def test_transformer_engines_manifest(plan: Planning, tmp_path: Path) -> None:
    """Prevents: a manifest that ROCm/QoLA builds, refused or built into something else."""
    made = plan(GFX1250)
    (module,) = made.modules
    assert (made.archs, made.kernels, made.kernel_groups, made.batches) == (
        ("gfx1250",),
        (),
        {},
        (),
    )
    assert module.library == "te_v3_libmha_fwd.so"
    assert [(entry.name, entry.parameters) for entry in module.entries] == [("mha_fwd", 2)]
    # mha_fwd_split.cu is an entry of a direction that has kernels of Composable Kernel alone.
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
    (warning,) = made.warnings
    assert warning.found == "gfx1250, which no test of qola builds for"
    assert Plan.from_json(made.to_json()) == made


def test_its_backward_library(plan: Planning) -> None:
    """Prevents: a library that has Composable Kernel's generator in its entry, and drops it."""
    made = plan(ALONE + BWD)
    (module,) = made.modules
    assert [entry.name for entry in module.entries] == ["mha_bwd"]
    assert "-DONLY_FAV3=1" in module.copts
    assert len(module.code_objects) == 6
    assert made.warnings == ()


def test_flags_that_are_added_will_do(plan: Planning) -> None:
    """Prevents: -DENABLE_CK=0 seen in one of the keys for flags alone."""
    text = BWD.replace("flags_extra_cc", "add_flags_extra_cc").replace("'", "")
    made = plan(ALONE + text)
    assert len(made.modules[0].code_objects) == 6


def test_what_a_plan_depends_on(plan: Planning, tree: AiterTree) -> None:
    """Prevents: a table, a code object or the script changed, and nothing planned anew."""
    made = plan(GFX1250)
    assert {
        "hsa/codegen.py",
        "hsa/gfx942/fmha_v3_fwd/fmha_fwd.csv",
        "hsa/gfx1250/fmha_fwd_bf16/fmha_fwd_bf16.csv",
        "hsa/gfx1250/fmha_fwd_bf16/sink_64.co",
        "csrc/py_itfs_cu/with_sink.cu",
    } <= set(made.inputs)
    watched = watched_dirs(resolve(Request("m", loads(GFX1250, file="m.toml"), tree)))
    assert {"hsa/gfx1250/fmha_fwd_bf16", "hsa/gfx1250/fmha_v3_fwd"} <= {*watched}


def test_the_build_file(plan: Planning) -> None:
    """Prevents: tables that are planned and do not come to the compiler."""
    made = plan(GFX1250)
    text = manifest_build_file(made, source="m.toml", aiter="aiter")
    assert '"libmha_fwd/include/asm_fmha_v3_fwd_configs.hpp",' in text
    assert "asm_tables = [" in text
    assert '"@aiter//:hsa/gfx1250/fmha_fwd_bf16/sink_64.co": "hsa/gfx1250' in text
    assert "asm_domain" not in text


def test_a_folder_that_nothing_launches(plan: Planning) -> None:
    """Prevents: code objects in a library that no source of it asks for."""
    text = GFX1250.replace('hsa_subdirs = ["fmha_fwd_bf16"]', 'hsa_subdirs = ["pa"]')
    finding = found_by(lambda: plan(text), PlanError)
    assert finding.place == "m.toml:13 [[modules]].hsa_subdirs"
    assert finding.found == "pa, whose code objects nothing in libmha_fwd launches"
    assert finding.expected == "fmha_fwd_bf16 or fmha_v3_fwd, or [] for none"
    assert finding.fix == 'hsa_subdirs = ["fmha_fwd_bf16", "fmha_v3_fwd"]'


def test_kernels_that_nothing_launches(plan: Planning, tree: AiterTree) -> None:
    """Prevents: a library that is planned and built, and answers -1 to everything."""
    source = tree.root / "csrc/cpp_itfs/mha_fwd.cu"
    source.write_text(source.read_text("utf-8").replace("with_sink", "with_nothing"), "utf-8")
    finding = found_by(lambda: plan(GFX1250), PlanError)
    assert finding.severity == "error"
    assert finding.found.startswith("with_sink, which mha_fwd in csrc/cpp_itfs/mha_fwd.cu does not")
    assert finding.fix.startswith("leave libmha_fwd out of the manifest, or use another commit")
    # With other kernels that are launched it is of use.
    both = GFX1250.replace('["gfx1250"]', '["gfx942", "gfx1250"]')
    both = both.replace('hsa_subdirs = ["fmha_fwd_bf16"]\n', "")
    made = plan(both)
    (warning,) = [w for w in made.warnings if "never launched" in w.found]
    assert warning.severity == "warning"


def test_a_tree_without_ck_says_so(plan: Planning) -> None:
    """Prevents: a module that needs Composable Kernel planned in a tree without it."""
    text = ALONE + BWD.replace("""flags_extra_cc = ["'-DONLY_FAV3=1'", "'-DENABLE_CK=0'"]""", "")
    finding = found_by(lambda: plan(text), AiterError)
    assert finding.found == "no Composable Kernel, which libmha_bwd needs"
    assert finding.place.endswith("/3rdparty/composable_kernel")
    assert finding.fix.startswith("git clone --recurse-submodules ")


def test_kernels_of_composable_kernel_by_name(plan: Planning) -> None:
    """Prevents: kernels that are asked for, and passed over because there is no CK."""
    name = (
        "bwd_dq_dk_dv.fp16.batch.d32x32.gfx9.b32x128x32x32x32x32x64x32x32_r1x4x1_r4x1x1_r2x2x1"
        "_w16x16x32_w16x16x16_o1_maxq0"
    )
    text = f'{ALONE}{BWD}[[kernels]]\nnames = ["{name}"]\n'
    finding = found_by(lambda: plan(text), QolaError)
    assert "ENABLE_CK=0" in finding.found
