"""Public header, entry source, macros and warnings of a library from a later AITER tree."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from qola.aiter.missing_names import Includer
from qola.aiter.tree import read_tree
from qola.codegen.types import CodeObject, GeneratedSource, KernelInstance, KernelSet, Selection
from qola.common.folder import Folder
from qola.manifest.load import loads
from qola.plan.generate import GeneratedModule
from qola.plan.module_entry import LibraryPlan, check_agreement, plan_library
from qola.plan.request import Request, ResolvedRequest
from qola.plan.resolve import configure, resolve
from qola.plan.stubs import LazySources
from qola_base.errors import AiterError, PlanError
from tests.support.folders import write

CORE = """\
def build_module():
    enable_ck = int(os.environ.get("ENABLE_CK", "1"))
    if not any("ENABLE_CK" in f for f in flags_extra_cc):
        flags_cc.append(f"-DENABLE_CK={enable_ck}")
"""
HEADER = """\
#include "aiter_hip_common.h"
#ifdef OWN_SWITCH
#endif
#if ENABLE_CK
#include "fmha.hpp"
#endif
namespace aiter {
struct mha_%(d)s_args {};
__attribute__((visibility("default"))) float mha_%(d)s(mha_%(d)s_args,
                                                      const ck_tile::stream_config&);
}
"""
FWD = """\
#include "mha_fwd.h"
#if FAV3_ON
#include "asm_fmha_v3_fwd_configs.hpp"
#endif
#if FAV1250_ON
#include "aiter_tensor.h"
#endif
namespace aiter {
#if FAV2_ON
float fmha_fwd_ck() { return 0; }
#endif
float mha_fwd(mha_fwd_args args, const ck_tile::stream_config& s) { return -1; }
}
"""
BWD = """\
#include "mha_bwd.h"
#include "asm_fmha_v3_bwd_configs.hpp"
namespace aiter {
float mha_bwd(mha_bwd_args a, const ck_tile::stream_config& s)
{
#if ONLY_FAV3
    return -1;
#endif
}
}
"""
MANIFEST = """\
[qola]
namespace = "te"
[build]
architectures = ["%s"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_%s"
%s
"""
CONFIG = "aiter/jit/optCompilerConfig.json"
CK_KERNEL = KernelInstance("k", "fwd", "fwd", ("gfx950",), "", {})
CK_ALONE = KernelSet((CK_KERNEL,), ())
V3_FWD = ("asm_fmha_v3_fwd_configs.hpp",)
CODE_OBJECT = CodeObject("hsa/gfx950/a.co", "hsa/gfx950/fmha_v3_fwd/a.co", "gfx950", "", 1)
V3_ALONE = KernelSet((), (), code_objects=(CODE_OBJECT,), headers=V3_FWD)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write a later AITER tree whose modules call no generator, and return its path."""
    entry = {"blob_gen_cmd": "''", "flags_extra_hip": ["'-DOWN_SWITCH=3'", "'-DNOBODY_ASKS=1'"]}
    config = {
        f"libmha_{d}": {**entry, "srcs": [f"f'{{AITER_CSRC_DIR}}/cpp_itfs/mha_{d}.cu'"]}
        for d in ("fwd", "bwd")
    }
    files = {
        CONFIG: json.dumps({**config, "module_1250": {"flags_extra_cc": ["'-DFAV1250_ON=1'"]}}),
        "aiter/jit/core.py": CORE,
        "csrc/include/aiter_hip_common.h": "#pragma once\n#if !ENABLE_CK\n#endif\n",
        "csrc/include/mha_fwd.h": HEADER % {"d": "fwd"},
        "csrc/include/mha_bwd.h": HEADER % {"d": "bwd"},
        "csrc/include/fmha.hpp": "namespace ck_tile { struct stream_config; }",
        "csrc/cpp_itfs/mha_fwd.cu": FWD,
        "csrc/cpp_itfs/mha_bwd.cu": BWD,
        "hsa/gfx950/fmha_v3_fwd/a.co": "",
        "3rdparty/composable_kernel/example/ck_tile/01_fmha/generate.py": "",
    }
    return write(tmp_path / "tree", files)


MakeLibrary = Callable[..., LibraryPlan]


@pytest.fixture
def make(root: Path, tmp_path: Path) -> MakeLibrary:
    """Return a function that writes the public header and the entry source of a module."""

    def run(
        direction: str = "fwd",
        *,
        manifest: str = "",
        arch: str = "gfx950",
        kernels: KernelSet = CK_ALONE,
    ) -> LibraryPlan:
        tree = read_tree(root)
        loaded = loads(MANIFEST % (arch, direction, manifest), file="m.toml")
        spec = loaded.modules[0]
        request = Request("m", loaded, tree)
        config = configure(request, spec)
        source = f"{spec.name}/sources/mha_{direction}.cpp"
        generated_source = GeneratedSource(f"mha_{direction}", source, "", direction, "entry")
        module = GeneratedModule(
            spec, config, Selection(), kernels=replace(kernels, sources=(generated_source,))
        )
        output = Folder(tmp_path / "out")
        output.write(source, (root / f"csrc/cpp_itfs/mha_{direction}.cu").read_text())
        resolved = ResolvedRequest(request, (arch,), (module,), ())
        kernel = [Includer("k.cpp", '#include "fmha.hpp"\n')]
        lazy = LazySources(output, spec.name)
        return plan_library(resolved, module, output, (), lazy, kernel)

    return run


def bwd(**changes: object) -> KernelSet:
    kernel = replace(CK_KERNEL, direction="bwd", role="dq_dk_dv")
    headers = ("asm_fmha_v3_bwd_configs.hpp",)
    return replace(KernelSet((kernel,), (), headers=headers), **changes)  # type: ignore[arg-type]


def test_header_and_entry_source_of_a_later_tree(make: MakeLibrary, tmp_path: Path) -> None:
    """Prevents: a header and a source with different functions, or wrong file names."""
    module = make().module
    assert [(e.name, e.parameters) for e in module.entries] == [("mha_fwd", 2)]
    header = (tmp_path / "out" / module.public_header.file).read_text()
    source = (tmp_path / "out" / module.entry_source.file).read_text()
    args = "float mha_fwd(const aiter::mha_fwd_args& args,"
    assert f"QOLA_API {args}" in header
    stream = "const ck_tile::stream_config& stream_config"
    assert f"\n{args} {stream})\n{{\n    return qola_entry::answer(" in source
    assert (module.public_header.name, module.entry_source.name) == ("qola_mha_fwd.h", "mha_fwd")
    assert module.entry_source.file == "libmha_fwd/entry/mha_fwd.cpp"


def test_entry_source_makes_aiters_checks_throw(
    make: MakeLibrary, root: Path, tmp_path: Path
) -> None:
    """Prevents: a failed check in AITER that ends the caller's process."""
    common = root / "csrc/include/aiter_hip_common.h"
    declaration = "inline thread_local bool g_aiter_can_throw%s;\n"
    use = "namespace aiter_detail { void f() { g_aiter_can_throw = true; } }"
    for text, throws in {
        f"#pragma once\nnamespace aiter_detail {{\n{declaration % ' = false'}}}": True,
        f"namespace aiter_detail {{ {declaration % '{false}'}}}": True,
        declaration % " = false": False,
        f"// g_aiter_can_throw\nnamespace aiter_detail {{ /* {declaration % ''} */ }}": False,
        f"namespace aiter_detail {{\n#if 0\n{declaration % ''}#endif\n}}": False,
        use: False,
    }.items():
        common.write_text(text)
        source = (tmp_path / "out" / make().module.entry_source.file).read_text()
        restored = "Restored throwing(::aiter_detail::g_aiter_can_throw, true);"
        assert (restored in source) == throws, text


@pytest.mark.parametrize(
    ("direction", "kernels", "flags"),
    [
        ("fwd", CK_ALONE, ("-DFAV2_ON=1",)),
        ("fwd", replace(V3_ALONE, kernels=(CK_KERNEL,)), ("-DFAV3_ON=1", "-DFAV2_ON=1")),
        ("fwd", V3_ALONE, ("-DFAV3_ON=1",)),
        ("bwd", bwd(), ()),
        ("bwd", bwd(kernels=(), code_objects=(CODE_OBJECT,)), ("-DONLY_FAV3=1",)),
    ],
)
def test_switches_of_aiters_sources(
    make: MakeLibrary, direction: str, kernels: KernelSet, flags: tuple[str, ...]
) -> None:
    """Prevents: a library that returns -1 for every problem because FAV2_ON is not set."""
    copts = make(direction, kernels=kernels).module.copts
    assert copts[copts.index("-DNOBODY_ASKS=1") + 1 :] == flags


def test_flags_of_the_manifest_override_switches(make: MakeLibrary) -> None:
    """Prevents: a macro that a manifest sets in flags and qola sets to another value."""
    flags = 'add_flags_extra_cc = ["-DFAV2_ON=0", "-DFAV1250_ON=0"]'
    library = make(manifest=flags, arch="gfx942")
    assert not {"-DFAV2_ON=1", "-DFAV1250_ON=1"} & {*library.module.copts}
    assert library.warnings == ()


def test_unknown_switch_is_a_warning(make: MakeLibrary, root: Path) -> None:
    """Prevents: code of AITER that an undefined macro disables, without a warning."""
    source = root / "csrc/cpp_itfs/mha_fwd.cu"
    source.write_text(FWD.replace("FAV1250_ON", "FAV_NATIVE_ON"))
    config = json.loads((root / CONFIG).read_text())
    config["module_native"] = {"flags_extra_cc": ["'-DFAV_NATIVE_ON=1'"]}
    (root / CONFIG).write_text(json.dumps(config))
    (warning,) = make(manifest="hsa_subdirs = []").warnings
    assert (warning.severity, warning.place) == ("warning", "csrc/cpp_itfs/mha_fwd.cu:5")
    assert "#if FAV_NATIVE_ON, a macro that nothing defines for libmha_fwd" in warning.found
    assert 'add_flags_extra_cc = ["-DFAV_NATIVE_ON=1"]' in warning.fix
    assert "AITER defines it for module_native" in warning.fix


NO_V3 = "hsa_subdirs = []"


def test_macro_defined_by_a_header(make: MakeLibrary, root: Path) -> None:
    """Prevents: a function reported missing, or a warning, although a header defines the macro."""
    (root / "csrc/include/aiter_hip_common.h").write_text(
        "#ifndef ENABLE_FOO\n#define ENABLE_FOO 1\n#endif\n"
    )
    source = root / "csrc/cpp_itfs/mha_fwd.cu"
    for condition in ("ENABLE_FOO", "!ENABLE_FOO", "HIP_VERSION >= 60000000", "HIP_FP8"):
        text = FWD.replace("float mha_fwd(", f"#if {condition}\nfloat mha_fwd(")
        source.write_text(text.replace("return -1; }\n", "return -1; }\n#endif\n"))
        library = make(manifest=NO_V3)
        assert [e.name for e in library.module.entries] == ["mha_fwd"], condition
        assert library.warnings == ()
        assert not {"ENABLE_FOO", "HIP_VERSION", "HIP_FP8"} & {*library.module.macros}


def test_macro_with_a_default_in_its_source(make: MakeLibrary, root: Path) -> None:
    """Prevents: a warning about a macro that has a default, or none in a source without it."""
    source = root / "csrc/cpp_itfs/mha_fwd.cu"
    default = "#ifndef USE_FAST\n#define USE_FAST 1\n#endif\n#if USE_FAST\nnamespace aiter"
    source.write_text(FWD.replace("namespace aiter", default) + "#endif\n")
    library = make(manifest=NO_V3)
    assert [e.name for e in library.module.entries] == ["mha_fwd"]
    assert library.warnings == ()
    # Another source tests the macro without a default.
    config = json.loads((root / CONFIG).read_text())
    config["libmha_fwd"]["srcs"].append("f'{AITER_CSRC_DIR}/cpp_itfs/more.cu'")
    (root / CONFIG).write_text(json.dumps(config))
    (root / "csrc/cpp_itfs/more.cu").write_text("#if USE_FAST\n#endif\n")
    (warning,) = make(manifest=NO_V3).warnings
    assert warning.place == "csrc/cpp_itfs/more.cu:1"


def test_number_in_a_macro_name_is_not_an_arch(make: MakeLibrary, root: Path) -> None:
    """Prevents: no warning about an undefined macro because its name contains a number."""
    source = root / "csrc/cpp_itfs/mha_fwd.cu"
    source.write_text(FWD.replace("FAV1250_ON", "USE_RING_1024"))
    (warning,) = make(manifest=NO_V3).warnings
    assert "#if USE_RING_1024" in warning.found


def test_missing_assembly_tables_are_a_warning(make: MakeLibrary) -> None:
    """Prevents: v3 kernels disabled without a warning, or a warning for archs that have none."""
    (warning,) = make().warnings
    assert warning.place == "libmha_fwd.blob_gen_cmd"
    assert "code objects: 1 in hsa/gfx950/fmha_v3_fwd" in warning.found
    assert warning.severity == "warning"
    assert make(manifest="hsa_subdirs = []").warnings == ()
    assert make(arch="gfx942").warnings == ()


def test_macros_for_users_of_the_header(make: MakeLibrary) -> None:
    """Prevents: struct layouts that differ between user and library, or unneeded macros."""
    library = make()
    assert library.module.macros == {"ENABLE_CK": "1", "OWN_SWITCH": "3"}
    without = make(manifest='flags_extra_cc = ["-DENABLE_CK=0"]')
    assert without.module.macros["ENABLE_CK"] == "0"


def test_modules_of_a_manifest_have_equal_macros(make: MakeLibrary) -> None:
    """Prevents: a program that includes AITER's headers with two values of ENABLE_CK."""
    fwd, backward = make(), make("bwd", kernels=bwd())
    check_agreement([fwd, backward])
    without_ck = make("bwd", kernels=bwd(), manifest='flags_extra_cc = ["-DENABLE_CK=0"]')
    with pytest.raises(PlanError, match="1 in libmha_fwd, 0 in libmha_bwd") as error:
        check_agreement([fwd, without_ck])
    assert "qola_config.h ENABLE_CK" in str(error.value)


def test_header_that_no_generator_writes(make: MakeLibrary, root: Path) -> None:
    """Prevents: a plan for sources that do not compile because an included header is missing."""
    with pytest.raises(PlanError, match="asm_fmha_v3_bwd_configs") as error:
        make("bwd", kernels=bwd(headers=()))
    assert "error: csrc/cpp_itfs/mha_bwd.cu:2" in str(error.value)
    assert "blob_gen_cmd" in str(error.value)
    # The forward source includes its table header only if FAV3_ON is set.
    asm = KernelSet((CK_KERNEL,), (), code_objects=(CODE_OBJECT,))
    with pytest.raises(PlanError, match=r"mha_fwd\.cu:3"):
        make(kernels=asm)
    (root / "csrc/include/fmha.hpp").write_text('#include "gone.hpp"\n')
    with pytest.raises(PlanError, match=r"csrc/include/fmha\.hpp:1"):
        make()


def test_other_composable_kernel_version(make: MakeLibrary, root: Path) -> None:
    """Prevents: a plan for sources that use names which this Composable Kernel does not declare."""
    source = root / "csrc/cpp_itfs/mha_fwd.cu"
    use = "ck_tile::index_t n; quant_scale_enum q; ck_tile::LayoutEnum l;"
    source.write_text(f"{FWD}\n#if FAV2_ON\n{use}\n#endif\n")
    header = root / "csrc/include/fmha.hpp"
    with header.open("a") as file:
        file.write("namespace ck_tile { using index_t = int; }\nenum class quant_scale_enum {};")
    with pytest.raises(PlanError, match=r"1 error(.|\n)*mha_fwd\.cu:16") as error:
        make()
    assert "LayoutEnum, which neither AITER nor the Composable Kernel at hand" in str(error.value)
    assert "quant_scale_enum" not in str(error.value)
    # Names in disabled code are not checked.
    assert make(kernels=V3_ALONE).module.entries


def test_only_types_are_reported_missing(make: MakeLibrary, root: Path) -> None:
    """Prevents: a variable whose name ends in _enum reported as a missing type."""
    source = root / "csrc/cpp_itfs/mha_fwd.cu"
    use = "if (kind_enum) f(kind_enum, other_enum);"
    text = f"{FWD}static int kind_enum = 0;\nvoid g(bool other_enum, int&) {{ {use} }}\n"
    source.write_text(text)
    assert make().module.entries
    source.write_text(f"{text}quant_enum q; void h(quant_enum);\nint i(){{return quant_enum{{}};}}")
    with pytest.raises(PlanError, match="1 error") as error:
        make()
    assert "quant_enum, which neither" in str(error.value)


def test_library_without_functions_is_refused(make: MakeLibrary) -> None:
    """Prevents: a library without kernels, or without the declaration of an entry function."""
    with pytest.raises(PlanError, match="without any kernel instance"):
        make(kernels=KernelSet((), ()))
    with pytest.raises(AiterError, match="no declaration of mha_fwd_splitkv"):
        make(kernels=KernelSet((CK_KERNEL, replace(CK_KERNEL, direction="fwd_splitkv")), ()))


def test_unknown_config_keys_are_reported(root: Path) -> None:
    """Prevents: a key of AITER's configuration that qola ignores without a warning."""
    manifest = loads(MANIFEST % ("gfx950", "fwd", ""), file="m.toml")
    assert resolve(Request("m", manifest, read_tree(root))).warnings == ()
    config = json.loads((root / CONFIG).read_text())
    config["module_1250"]["later"] = "'x'"
    (root / CONFIG).write_text(json.dumps(config))
    (warning,) = resolve(Request("m", manifest, read_tree(root))).warnings
    assert (warning.severity, warning.place) == ("warning", CONFIG)
    assert warning.found == "unknown keys: later of module_1250"
    config["libmha_fwd"]["later"] = "'x'"
    (root / CONFIG).write_text(json.dumps(config))
    with pytest.raises(AiterError, match="unknown key later"):
        resolve(Request("m", manifest, read_tree(root)))
