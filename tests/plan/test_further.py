"""Torch modules other than attention: AITER's sources and generated sources."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from qola.aiter.tree import AiterTree, read_tree
from qola.codegen.asm.script import merge_headers
from qola.common.packages import ROOT
from qola.plan.model import Plan
from qola.plan.python_modules import python_exports
from qola.repository.__main__ import NEEDS_PACKAGES
from qola.repository.build_files import manifest_build_file
from qola_base.errors import QolaError
from tests.support.folders import write
from tests.support.later_tree import add_modules, embed_code_objects, write_later_tree
from tests.support.plans import plan_text

PlanFunction = Callable[..., Plan]


@pytest.fixture
def plan(tree: AiterTree, tmp_path: Path) -> PlanFunction:
    """Return a function that plans a module and writes its files to the test's directory."""

    def run(name: str, archs: str = '"gfx942"', more: str = "") -> Plan:
        text = f'[qola]\nnamespace = "ns"\n[build]\narchitectures = [{archs}]\n{more}\n'
        return plan_text(f'{text}[[modules]]\nname = "{name}"\n', tree, tmp_path)

    return run


def test_module_of_plain_sources(plan: PlanFunction, tmp_path: Path) -> None:
    """Prevents: a refused module without generators, or a file name that Python does not find."""
    result = plan("module_activation")
    (module,) = result.torch_modules
    assert (module.library, module.symbol) == (
        "ns_module_activation.so",
        "PyInit_ns_module_activation",
    )
    assert module.copts == ("-ffast-math", "-DCK_TILE_USE_BUFFER_ADDRESSING_BUILTIN=0")
    assert [source.name for source in module.sources] == [
        "activation_pybind",
        "activation_kernels",
    ]
    assert (module.init, module.host_only) == (("activation_pybind",), ("activation_pybind",))
    assert not [*module.kernels, *module.generated, *module.code_objects]
    assert all((tmp_path / source.file).is_file() for source in module.sources)
    assert Plan.from_json(result.to_json()) == result


def test_generated_sources_are_compiled_in_batches(plan: PlanFunction, tmp_path: Path) -> None:
    """Prevents: a generated source that no action compiles, or that two actions compile."""
    result = plan("module_norm")
    (module,) = result.torch_modules
    batches = [source for source in module.sources if source.role == "batch"]
    # Batches do not depend on AITER's headers, which only the other sources include.
    headers = result.header_set(module.batch_headers).files
    assert headers
    assert not [file for file in headers if "/csrc/" in file]
    assert module.batch_files.keys() == {source.name for source in batches}
    texts = [(tmp_path / source.file).read_text("utf-8") for source in batches]
    members = [name for text in texts for name in re.findall(r'"\.\./([^"]+\.cpp)"', text)]
    known = {file.name for file in module.generated}
    assert len(members) == len(set(members)) == 392
    assert {*members} == known - {"layernorm2d_fwd_api_common.hpp"}
    assert len(batches) == -(-392 // 16)
    assert [source.name for source in module.sources if source.role != "batch"] == [
        "norm_kernels",
        "norm_pybind",
        "asm_layernorm",
        "layernorm2d_fwd_api",
    ]


def test_sources_that_include_pytorch(plan: PlanFunction) -> None:
    """Prevents: PyTorch's headers parsed for each source, or precompiled with conflicting flags."""
    (norm,) = plan("module_norm").torch_modules
    assert norm.with_torch == ("asm_layernorm", "norm_kernels", "norm_pybind")
    # The members of these batches include PyTorch through a generated header.
    (gemm,) = plan("module_gemm_a8w8").torch_modules
    assert {*gemm.with_torch} == {source.name for source in gemm.sources}
    # -ffast-math changes language options, so that a precompiled header does not fit.
    (activation,) = plan("module_activation").torch_modules
    assert not activation.with_torch


def test_batch_1_compiles_sources_separately(plan: PlanFunction) -> None:
    """Prevents: `batch = 1` without effect on generated sources of torch modules."""
    (module,) = plan("module_norm", more="batch = 1").torch_modules
    assert not [source for source in module.sources if source.role == "batch"]
    assert len(module.sources) == 392 + 4


def test_gemms_of_a_tile_are_one_batch(plan: PlanFunction, tmp_path: Path) -> None:
    """Prevents: a header included twice, or all GEMMs recompiled for an additional tile."""
    (module,) = plan("module_gemm_a8w8").torch_modules
    batches = [source for source in module.sources if source.role == "batch"]
    assert len(batches) == len([f for f in module.generated if f.name.startswith("impl/")]) == 34
    assert not [source for source in module.sources if source.role == "generated"]
    folder = tmp_path / "module_gemm_a8w8/generated"
    for source in batches:
        text = (tmp_path / source.file).read_text("utf-8")
        (header,) = re.findall(r'^#include "(impl/.+)"$', text, re.MULTILINE)
        members = re.findall(r'"\.\./(instances/.+\.cpp)"', text)
        assert len(members) == 8
        assert all(f'#include "{header}"' in (folder / name).read_text("utf-8") for name in members)
        once = (folder / "once" / header).read_text("utf-8")
        assert once == f'#pragma once\n#include "../../{header}"\n'
        # A batch must not read the lookup table, which changes with every tile.
        read = {
            Path(file).relative_to("module_gemm_a8w8/generated").as_posix()
            for file in module.batch_files[source.name]
        }
        assert read == {*members, header, f"once/{header}"}


def test_macro_instances_are_compiled_in_batches(plan: PlanFunction, tmp_path: Path) -> None:
    """Prevents: MoE instances compiled separately because they use constants and AITER's macro."""
    (module,) = plan("module_moe_ck2stages").torch_modules
    batches = [source for source in module.sources if source.role == "batch"]
    texts = [(tmp_path / source.file).read_text("utf-8") for source in batches]
    members = [name for text in texts for name in re.findall(r'"\.\./([^"]+\.cpp)"', text)]
    assert len(members) == len({*members}) == 748
    assert all("#define Nswizzle QOLA_LOCAL(Nswizzle)\n" in text for text in texts)
    assert not any("CK_MOE_STAGE1_GEMM_DEFINE" in text for text in texts)


def test_tuning_table_reaches_the_generator(plan: PlanFunction, tmp_path: Path) -> None:
    """Prevents: a GEMM without kernels for the problems that AITER tuned, or a stale plan."""
    result = plan("module_gemm_a8w8")
    (module,) = result.torch_modules
    table = (tmp_path / "module_gemm_a8w8/generated/gemm_a8w8_lookup.h").read_text("utf-8")
    assert table.count("a8w8_rowwise_") > 100
    assert any(file.name.startswith("impl/a8w8_rowwise_") for file in module.generated)
    assert {
        "aiter/configs/a8w8_tuned_gemm.csv",
        "aiter_meta/csrc/ck_gemm_a8w8/gen_instances.py",
        "aiter_meta/csrc/ck_gemm_a8w8/gemm_a8w8_common.py",
        "aiter_meta/csrc/ck_gemm_a8w8/gemm_a8w8.cu",
    } < {*result.inputs}


def test_merged_tuning_tables_reach_the_generator(plan: PlanFunction, tmp_path: Path) -> None:
    """Prevents: GEMMs only from the default table, or a model's table that is not watched."""
    result = plan("module_gemm_a8w8_blockscale")
    text = tmp_path / "module_gemm_a8w8_blockscale/generated/gemm_a8w8_blockscale_lookup.h"
    problems = re.findall(r"\{\{(\d+), *(\d+), *(\d+)\}", text.read_text("utf-8"))
    # Two tables have 847 rows; the merged table contains the fastest row of each problem.
    assert len(problems) == len(set(problems)) == 616
    assert {
        "aiter/configs/a8w8_blockscale_tuned_gemm.csv",
        "aiter/configs/a8w8_blockscale_untuned_gemm.csv",
        "aiter/configs/model_configs/a8w8_blockscale_tuned_gemm_ds_v3.csv",
    } < {*result.inputs}


def test_flags_that_query_pytorch_and_name_the_tree(plan: PlanFunction) -> None:
    """Prevents: flags for another ROCm, or objects that contain the path of the AITER tree."""
    (module,) = plan("module_moe_ck2stages").torch_modules
    assert ("-mllvm", "--misched-prera-direction=bottomup") in {*pairwise(module.copts)}
    # AITER's macro contains a path in the tree, and no source uses it.
    assert not [flag for flag in module.copts if "MOE_STAGE2_ASM_DIR" in flag]


def test_assembly_kernels_are_embedded(plan: PlanFunction) -> None:
    """Prevents: modules that read code objects from hsa/ on disk instead of embedded ones."""
    (module,) = plan("module_mla_asm", archs='"gfx942", "gfx950"').torch_modules
    keys = [code_object.key for code_object in module.code_objects]
    assert len(keys) == len({*keys}) == 32
    assert {key.split("/")[2] for key in keys} == {"mla"}
    result = plan("module_gemm_a8w8_asm")
    assert [code_object.key for code_object in result.torch_modules[0].code_objects] == [
        f"hsa/gfx942/i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_{tile}.co"
        for tile in ("128x128", "192x128")
    ]
    build = manifest_build_file(result, source="m.toml", aiter="aiter")
    assert "    asm_files = True," in build
    assert "/hsa/gfx942/i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_128x128.co" in build
    without_assembly = plan("module_activation")
    assert "asm_files" not in manifest_build_file(without_assembly, source="m.toml", aiter="aiter")


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("module_attention_asm", "asm_pa_configs.hpp"),
        ("module_gemm_a4w4_asm", "asm_f4gemm_configs.hpp"),
        ("module_gemm_a8w8_asm", "asm_i8gemm_configs.hpp"),
        ("module_moe_asm", "asm_moe_2stage_configs.hpp"),
    ],
)
def test_tables_of_several_archs(
    plan: PlanFunction, tmp_path: Path, name: str, header: str
) -> None:
    """Prevents: a module for two archs with the tables or the code objects of only one of them."""
    archs = ("gfx942", "gfx950")
    entries, keys = {}, {}
    for arch in archs:
        (module,) = plan(name, archs=f'"{arch}"').torch_modules
        text = (tmp_path / name / "generated" / header).read_text("utf-8")
        entries[arch] = re.findall(r"^ +(ADD_CFG\(.+)", text, re.MULTILINE)
        keys[arch] = {code_object.key for code_object in module.code_objects}
    (module,) = plan(name, archs='"gfx942", "gfx950"').torch_modules
    text = (tmp_path / name / "generated" / header).read_text("utf-8")
    for arch in archs:
        tables = re.findall(rf"^static CFG qola_{arch}_\w+ = {{(.*?)}};", text, re.M | re.DOTALL)
        arch_entries = re.findall(r"^ +(ADD_CFG\(.+)", "".join(tables), re.MULTILINE)
        assert sorted(arch_entries) == sorted(entries[arch])
    assert {found.key for found in module.code_objects} == keys["gfx942"] | keys["gfx950"]


def test_headers_that_differ_in_more_than_tables() -> None:
    """Prevents: a type or function of one arch used for all archs."""
    table = 'struct A {};\nstatic CFG cfg_a = {\n  ADD_CFG(1, "a"),\n};'
    other = table.replace("1", "2") + "\nstatic CFG cfg_b = {};\n"
    merged = merge_headers({"gfx942": table, "gfx950": other})
    assert merged.count("struct A {};") == merged.count("#define cfg_a ") == 1
    assert (
        '#define cfg_b (::qola_asm::table_of_arch<CFG>({{"gfx950", &qola_gfx950_cfg_b}}))' in merged
    )
    assert merge_headers({"gfx942": table, "gfx950": other.replace("A", "B", 1)}) == ""
    assert merge_headers({"gfx942": "int a = 1;", "gfx950": "int a = 2;"}) == ""


def test_generator_that_ignores_archs(plan: PlanFunction) -> None:
    """Prevents: a module for two archs that is planned with other sources than for one of them."""
    single = plan("module_moe_cktile2stages").torch_modules[0]
    both = plan("module_moe_cktile2stages", archs='"gfx942", "gfx950"').torch_modules[0]
    assert both.generated == single.generated
    assert [source.sha256 for source in both.sources] == [
        source.sha256 for source in single.sources
    ]
    assert not both.per_arch


MOE = "{AITER_CSRC_DIR}/ck_gemm_moe_2stages_codegen/gen_instances.py"
#: A few instances of 1,300.
FEW = "-a f8 -b f8 -c b16 -q per_tensor -act silu -m 2 --working_path {{}}"


def test_sources_that_depend_on_the_arch(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: a refused module for two archs, or sources unlike those of single archs."""
    text = '[build]\nmode = "aiter"\narchitectures = [{}]\n[[modules]]\n{}\n'
    texts: dict[str, dict[str, set[str]]] = {}
    plans = {}
    for archs in (("gfx942",), ("gfx950",), ("gfx942", "gfx950")):
        listed = ", ".join(f'"{arch}"' for arch in archs)
        module = f'name = "module_moe_ck2stages"\nblob_gen_cmd = "f\'{MOE} {FEW}\'"'
        folder = tmp_path / "_".join(archs)
        result = plans[archs] = plan_text(text.format(listed, module), tree, folder)
        (moe,) = result.torch_modules
        assert moe.per_arch == (len(archs) > 1)
        for arch in archs:
            files = [source.file for source in moe.sources if source.archs in ((), (arch,))]
            files += [f.file for f in moe.generated if not moe.per_arch or f"/{arch}/" in f.file]
            read = {(folder / file).read_text("utf-8") for file in files}
            texts.setdefault(arch, {})["_".join(archs)] = read
    for arch, found_texts in texts.items():
        assert found_texts[arch] == found_texts["gfx942_gfx950"]
    assert texts["gfx942"]["gfx942"] != texts["gfx950"]["gfx950"]
    build = manifest_build_file(plans["gfx942", "gfx950"], source="m.toml", aiter="aiter")
    assert "    per_arch = True," in build
    # Bazel compiles a batch of instances for each arch, only with files of this arch.
    batches = re.findall(
        r"^        \"(batch_\w+)_(gfx\d+)\": \[\n(.*?)^        \]", build, re.M | re.S
    )
    assert {arch for _, arch, _ in batches} == {"gfx942", "gfx950"}
    for _, arch, files in batches:
        assert files.count("/generated/") == files.count(f"/generated/{arch}/")
    sources = build[build.index("    sources = {") :]
    assert re.findall(r'^        "(gfx[^"]+)": {', sources, re.M) == ["gfx942", "gfx950"]
    single = manifest_build_file(plans["gfx942",], source="m.toml", aiter="aiter")
    assert "per_arch" not in single


def test_sources_per_arch_without_torch_are_refused(tmp_path: Path) -> None:
    """Prevents: a library of C functions for two archs with kernels of only the first one."""
    root = write_gemm(tmp_path / "later")
    script = root / "csrc/gemm/gen.py"
    text = script.read_text("utf-8").replace("import get_gfx_list", "import get_gfx")
    script.write_text(text.replace("{get_gfx_list()}", "{get_gfx()}"), "utf-8")
    found = r"gemm\.h is another for each of gfx942, gfx950"
    with pytest.raises(QolaError, match=found):
        plan_gemm(read_tree(root), tmp_path)


def test_build_file_lists_generated_headers(plan: PlanFunction) -> None:
    """Prevents: generated headers that are not inputs of the compile actions."""
    text = manifest_build_file(plan("module_norm"), source="m.toml", aiter="aiter")
    assert '"module_norm/generated/layernorm2d_fwd_api_common.hpp",' in text
    assert 'host_only = ["norm_pybind"],' in text
    assert "kernels = {\n    }," in text


#: Files of a later tree: AITER's functions read the tuning table for the archs in GPU_ARCHS.
TUNED = {
    "aiter/jit/utils/chip_info.py": """\
import os
from cpp_extension import executable_path
from torch_guard import torch_compile_guard

@torch_compile_guard()
def asked() -> int:
    return executable_path("rocminfo")

def get_gfx_list() -> list[str]:
    return [asked()]

def tuned(frame):
    wanted = os.environ["GPU_ARCHS"].split(";")
    return [row["kernel"] for _, row in frame.iterrows() if row["gfx"] in wanted]
""",
    "csrc/gemm/gen.py": """\
import os, sys
import pandas as pd
here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../aiter/jit/utils"))
from chip_info import get_gfx_list, tuned
found = tuned(pd.read_csv(os.path.join(here, "tuned.csv")))
with open(os.path.join(sys.argv[1], "gemm.h"), "w") as file:
    file.write(f"#pragma once // {get_gfx_list()} {found}\\n")
""",
    "csrc/gemm/tuned.csv": "gfx,kernel\ngfx942,a\ngfx950,b\ngfx1250,c\n",
    "csrc/gemm/gemm.cu": '#include <hipcub/hipcub.hpp>\n#include "gemm.h"\n'
    'extern "C" __attribute__((visibility("default")))\nint gemm() { return 0; }\n',
}


def write_gemm(root: Path) -> Path:
    """Write a later tree with module_gemm, whose generator reads a tuning table."""
    write(write_later_tree(root), TUNED)
    sources, command = "f'{AITER_CSRC_DIR}/gemm/gemm.cu'", "f'{AITER_CSRC_DIR}/gemm/gen.py {{0}}'"
    add_modules(root, {"module_gemm": {"srcs": [sources], "blob_gen_cmd": command}})
    return root


def plan_gemm(tree: AiterTree, directory: Path) -> Plan:
    """Plan module_gemm, and write its files below a directory."""
    text = '[qola]\nnamespace = "ns"\n[build]\narchitectures = ["gfx942", "gfx950"]\n'
    return plan_text(f'{text}[[modules]]\nname = "module_gemm"\n', tree, directory / "out")


def test_repository_rule_is_asked_for_packages(tmp_path: Path) -> None:
    """Prevents: a failed plan of a GEMM in Bazel, or packages fetched for manifests without one."""
    root = write_gemm(tmp_path / "later")
    plain = TUNED["csrc/gemm/gemm.cu"].replace('#include "gemm.h"\n', "")
    write(root, {"csrc/gemm/plain.cu": plain})
    add_modules(root, {"module_plain": {"srcs": ["f'{AITER_CSRC_DIR}/gemm/plain.cu'"]}})
    packages = tmp_path / "packages"
    packages.mkdir()
    for installed in {Path(path) for path in sys.path if Path(path).is_dir()}:
        for path in installed.iterdir():
            if path.name not in ("numpy", "pandas") and not (packages / path.name).is_symlink():
                (packages / path.name).symlink_to(path.absolute())
    for name, is_asked in (("module_gemm", True), ("module_plain", False)):
        manifest, output = tmp_path / f"{name}.toml", tmp_path / name
        archs = '[build]\narchitectures = ["gfx942"]\n'
        text = f'[qola]\nnamespace = "ns"\n{archs}[[modules]]\nname = "{name}"\n'
        manifest.write_text(text, "utf-8")
        output.mkdir()
        command = [sys.executable, "-S", "-s", "-m", "qola.repository", f"--name={name}"]
        command += [f"--manifest={manifest}", "--display=m.toml", f"--output={output}"]
        command += [f"--aiter={root}", "--aiter-repository=aiter"]
        environ = {"PYTHONPATH": f"{ROOT}:{packages}"}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert (done.returncode, (output / NEEDS_PACKAGES).exists()) == (is_asked, is_asked), done
        assert ("-m pip install pandas" in done.stderr) == is_asked


def test_aiters_functions_read_tuning_tables(tmp_path: Path) -> None:
    """Prevents: later GEMM modules that cannot be planned, or kernels for other archs."""
    tree = read_tree(write_gemm(tmp_path / "later"))
    plan = plan_gemm(tree, tmp_path)
    (module,) = plan.python_modules
    assert module.rocm == ("hipcub",)
    build = manifest_build_file(plan, source="m.toml", aiter="aiter")
    assert 'rocm_headers = "@rocm//:headers",' in build
    (header,) = module.generated
    written = (tmp_path / "out" / header.file).read_text("utf-8")
    assert written == "#pragma once // ['gfx942', 'gfx950'] ['a', 'b']\n"
    assert {*TUNED} <= {*module.inputs}


def test_chip_info_runs_only_if_generators_need_it(tmp_path: Path) -> None:
    """Prevents: a failing import of AITER's chip_info in generators that only need the archs."""
    root = write_gemm(tmp_path / "later")
    (root / "aiter/jit/utils/chip_info.py").write_text("import packaging_of_tomorrow\n", "utf-8")
    script = root / "csrc/gemm/gen.py"
    text = script.read_text("utf-8")
    script.write_text(text.replace("get_gfx_list, tuned", "get_gfx_list"), "utf-8")
    with pytest.raises(QolaError, match="name 'tuned' is not defined"):
        plan_gemm(read_tree(root), tmp_path)
    (root / "aiter/jit/utils/chip_info.py").unlink()
    script.write_text(text, "utf-8")
    with pytest.raises(QolaError, match="chip_info: no such file of AITER's in Python's path"):
        plan_gemm(read_tree(root), tmp_path)


_DEVICE_CODE = """\
import json, os, sys
for name in ("a.device.cu", "b.device.cu", "c.cu", "d.cu"):
    with open(os.path.join(sys.argv[1], name), "w") as file:
        file.write("template struct T<1>;\\n")
with open(sys.argv[2].partition("=")[2], "w") as file:
    json.dump([], file)
"""


def test_flags_are_split_as_by_a_shell(tree: AiterTree, tmp_path: Path) -> None:
    """Prevents: two arguments in one, which the compiler does not know."""
    head = (
        '[build]\narchitectures = ["gfx942"]\nmode = "aiter"\n[[modules]]\nname = "module_quant"\n'
    )
    flags = r"""add_flags_extra_hip = ['-mllvm -x', '-DTEXT=\"a\"', '-DWORDS="c d"']"""
    (module,) = plan_text(head + flags, tree, tmp_path / "right").torch_modules
    assert module.copts[-4:] == ("-mllvm", "-x", '-DTEXT="a"', "-DWORDS=c d")
    with pytest.raises(QolaError, match=r'add_flags_extra_hip\n.* -DTEXT="a: an open quote'):
        plan_text(
            f"{head}add_flags_extra_hip = ['-mllvm -x', '-DTEXT=\"a']", tree, tmp_path / "wrong"
        )


def test_flags_per_source(tmp_path: Path) -> None:
    """Prevents: device code compiled with flags of another source, separately or in a batch."""
    root = write_gemm(tmp_path / "later")
    (root / "csrc/gemm/gen.py").write_text(_DEVICE_CODE, "utf-8")
    (root / "csrc/gemm/gemm.cu").write_text(
        'extern "C" __attribute__((visibility("default")))\nint gemm() { return 0; }\n', "utf-8"
    )
    # Like AITER's opus_gemm, the generator also writes a file outside of its output directory.
    command = "f'{AITER_CSRC_DIR}/gemm/gen.py {{0}} --sidecar={{0}}/../../kept.json'"
    flags = {"*a.device.cu": ["-DA", "-mllvm -x"], "*.device.cu": ["-DB"], "/*/c.cu": ["-DC"]}
    entry = {"blob_gen_cmd": command, "flags_extra_hip_per_source": flags}
    add_modules(root, {"module_gemm": {"srcs": ["f'{AITER_CSRC_DIR}/gemm/gemm.cu'"], **entry}})
    plan = plan_gemm(read_tree(root), tmp_path)
    (module,) = plan.python_modules
    assert module.source_copts == {
        "a.device": ("-DA", "-mllvm", "-x"),
        "b.device": ("-DB",),
        "c": ("-DC",),
    }
    assert {"gemm", "d", *module.source_copts} == {source.name for source in module.sources}
    build = manifest_build_file(plan, source="m.toml", aiter="aiter")
    assert 'source_copts = {\n        "a.device"' in build


def test_c_functions_of_later_trees(tmp_path: Path) -> None:
    """Prevents: a ctypes library that exports no functions or reads code objects from disk."""
    root = write_later_tree(tmp_path / "later")
    sources = "f'{AITER_CSRC_DIR}/py_itfs_cu/with_sink.cu'"
    command = "f'{AITER_META_DIR}/hsa/codegen.py -m fmha_fwd_bf16 --output_dir {{}}'"
    add_modules(root, {"module_sink": {"srcs": [sources], "blob_gen_cmd": command}})
    embed_code_objects(root)
    text = '[qola]\nnamespace = "ns"\n[build]\narchitectures = ["gfx1250"]\nmode = "cpp_itfs"\n'
    plan = plan_text(f'{text}[[modules]]\nname = "module_sink"\n', read_tree(root))
    (module,) = plan.python_modules
    assert (module.library, module.symbol) == ("ns_module_sink.so", "")
    assert [found.name for found in module.generated] == ["asm_fmha_fwd_bf16_configs.hpp"]
    assert [found.key for found in module.code_objects] == [
        "hsa/gfx1250/fmha_fwd_bf16/sink_128.co",
        "hsa/gfx1250/fmha_fwd_bf16/sink_64.co",
    ]
    assert "deps = []," in manifest_build_file(plan, source="m.toml", aiter="aiter")
    assert "global" not in python_exports(module.symbol)
    assert Plan.from_json(plan.to_json()) == plan
