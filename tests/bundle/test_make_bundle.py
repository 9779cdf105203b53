"""Steps of making a bundle, without a build: headers, licenses, records, tar files, Triton."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from qola.aiter.includes import closure
from qola.aiter.tree import configs, read_tree
from qola.aiter.tree import licenses as license_files
from qola.bundle import config_files, licenses, sbom
from qola.bundle.archive import pack
from qola.bundle.build import BundleInputs, LibraryInput, TritonInput, build, compiler_of
from qola.bundle.elf_versions import demangle, exported
from qola.bundle.flatten import HeaderUser, flatten, landing
from qola.bundle.record import (
    AiterRecord,
    BundleRecord,
    FileRecord,
    LibraryFacts,
    LibraryRecord,
    manifest_record,
    triton_record,
)
from qola.codegen.types import CodeObject
from qola.common.layout import function_file
from qola.plan.model import Plan
from qola.triton.library import Built, pack_built
from qola_base.errors import BundleError
from qola_base.json_types import reader
from tests.support import plans
from tests.support.folders import write

LICENSE = Path(__file__).resolve().parents[2] / "LICENSE"
MIT = LICENSE.read_text(encoding="utf-8")


USER = HeaderUser(("top.h",), ("api", "ck", "example"))


def test_headers_are_flattened_into_one_directory(tmp_path: Path) -> None:
    """Prevents: a bundle needs several -I options, or lacks an indirectly included header."""
    files = {
        "api/top.h": "#include <core/a.hpp>\n#include <hip/hip_runtime.h>\n",
        "ck/core/a.hpp": '#include "b.hpp"\n#include "mask.hpp"\n',
        "ck/core/b.hpp": "",
        "ck/core/unused.hpp": "",
        "example/mask.hpp": '#include "core/b.hpp"\n',
    }
    assert flatten(write(tmp_path, files), [USER]) == {
        "core/a.hpp": "ck/core/a.hpp",
        "core/b.hpp": "ck/core/b.hpp",
        "mask.hpp": "example/mask.hpp",
        "top.h": "api/top.h",
    }


def test_two_files_of_one_name_are_an_error(tmp_path: Path) -> None:
    """Prevents: a bundle contains only one of two different headers with equal paths."""
    files = {
        "api/top.h": '#include "core/a.hpp"\n#include "mask.hpp"\n',
        "ck/core/a.hpp": '#include "../mask.hpp"\n',
        "api/mask.hpp": "int one;\n",
        "ck/mask.hpp": "int two;\n",
    }
    with pytest.raises(BundleError, match=r"include/mask.hpp\n +found .*api/mask.*ck/mask"):
        flatten(write(tmp_path, files), [USER])
    write(tmp_path, {"ck/mask.hpp": "int one;\n"})
    assert "mask.hpp" in flatten(tmp_path, [USER])


def test_include_of_another_file_is_an_error(tmp_path: Path) -> None:
    """Prevents: in a bundle, a quoted include finds another file than in the tree."""
    files = {
        "api/top.h": "#include <core/a.hpp>\n#include <core/util.h>\n",
        "ck/core/a.hpp": '#include "util.h"\n',
        "example/core/util.h": "",
        "example/util.h": "",
    }
    with pytest.raises(BundleError) as caught:
        flatten(write(tmp_path, files), [USER])
    (finding,) = caught.value.findings
    assert finding.place == "ck/core/a.hpp: #include util.h"
    assert "include/core/util.h" in finding.found
    assert finding.expected == "example/util.h"


def test_system_headers_are_not_hidden(tmp_path: Path) -> None:
    """Prevents: a header of the bundle hides <version> of the C++ library."""
    files = {
        "api/top.h": '#include <version>\n#include "x/version"\n',
        "ck/x/version": '#include "y.h"\n',
        "ck/x/y.h": "",
    }
    assert "x/version" in flatten(write(tmp_path, files), [USER])
    # The second library's users reach the same file by its bare name.
    other = HeaderUser(("y.h", "version"), ("ck/x",))
    with pytest.raises(BundleError, match=r"error: api/top\.h: #include version\n"):
        flatten(tmp_path, [USER, other])


def test_missing_public_header_is_an_error(tmp_path: Path) -> None:
    """Prevents: a bundle without a public header."""
    with pytest.raises(BundleError, match=r"top\.h"):
        flatten(write(tmp_path, {"api/other.h": ""}), [USER])


def test_deepest_directory_determines_the_header_path() -> None:
    """Prevents: the bundle stores a header at its path in the tree instead of its #include path."""
    assert landing("a/b/c.h", ["a", "a/b"]) == "c.h"
    assert landing("ab/c.h", ["a"]) is None


def test_real_headers_have_no_conflicts(aiter_tree: Path) -> None:
    """Prevents: headers of an AITER tree conflict only when a bundle is built."""
    tree = read_tree(aiter_tree)
    dirs = (f"{tree.ck_dir}/include", f"{tree.csrc_dir}/include", tree.fmha_dir)
    users = [HeaderUser((f"{entry}.h",), dirs) for entry in ("mha_fwd", "mha_bwd")]
    flat = flatten(aiter_tree, users)
    assert {"mha_fwd.h", "mha_bwd.h", "mask.hpp", "bias.hpp", "ck_tile/core.hpp"} <= flat.keys()
    assert set(flat.values()) == set(closure(aiter_tree, dirs, ["mha_fwd.h", "mha_bwd.h"]))


def test_tuning_tables_of_a_bundle(aiter_tree: Path) -> None:
    """Prevents: a bundle of attention kernels has tables of GEMMs, or one of GEMMs lacks them."""
    tree = read_tree(aiter_tree)

    def found(*names: str) -> list[str]:
        files = configs(tree, [tree.module(name, archs=("gfx950",)) for name in names])
        return [path.removeprefix("aiter/configs/") for path in files]

    assert found("libmha_fwd", "libmha_bwd", "module_norm") == []
    tables = found("module_gemm_a8w8_blockscale", "libmha_fwd")
    assert "a8w8_blockscale_tuned_gemm.csv" in tables
    assert any(path.startswith("model_configs/a8w8_blockscale_tuned_gemm") for path in tables)
    assert all("a8w8_blockscale" in path for path in tables)
    assert all((aiter_tree / "aiter/configs" / path).is_file() for path in tables)


def test_real_tree_has_licenses(aiter_tree: Path) -> None:
    """Prevents: a bundle lacks licenses because patterns do not match."""
    tree = read_tree(aiter_tree)
    files = [str(aiter_tree / path) for path in license_files(tree)]
    collected = licenses.collect(files, str(LICENSE), place="the wheel")
    assert list(collected) == ["aiter", "composable_kernel", "qola"]
    assert {text.spdx for text in collected.values()} == {"MIT"}


def test_missing_and_unknown_licenses() -> None:
    """Prevents: a bundle lacks a license text, or calls any text MIT."""
    with pytest.raises(BundleError) as caught:
        licenses.collect([], str(LICENSE), place="some/tree")
    places = [finding.place for finding in caught.value.findings]
    assert places == ["licenses/aiter", "licenses/composable_kernel"]
    unknown = licenses.identify("composable_kernel", "All yours.")
    assert unknown.spdx == "LicenseRef-composable-kernel"


def test_demangled_names() -> None:
    """Prevents: manifest.json contains mangled names, or demangling fails for a plain name."""
    assert demangle("_ZN4qola2te7mha_fwdEb") == "qola::te::mha_fwd(bool)"
    assert demangle("plain_c") == "plain_c"
    assert demangle("_Znonsense") == "_Znonsense"


def test_file_that_is_not_a_library_is_an_error(tmp_path: Path) -> None:
    """Prevents: a file that is not a library causes a traceback."""
    (tmp_path / "x.so").write_text("no ELF")
    with pytest.raises(BundleError, match=r"x\.so"):
        exported(tmp_path / "x.so")


BOTH = ("gfx942", "gfx950")
CODE_OBJECT = CodeObject("a", "hsa/a.co", "gfx942", "0" * 64, 1)
PLAN = plans.plan(
    qola="1.0",
    archs=BOTH,
    manifest={"b": 1, "a": 2},
    kernels=(
        plans.kernel("k2", archs=("gfx942",)),
        plans.kernel("s1", direction="fwd_splitkv", archs=BOTH),
        plans.kernel("k1"),
        plans.kernel("other", module="libmha_bwd", direction="bwd"),
    ),
    modules=(
        plans.module(kernels=(0, 1, 2), code_objects=(CODE_OBJECT,)),
        plans.module("libmha_bwd", kernels=(3,)),
    ),
    python_modules=(
        plans.python_module("module_aiter_enum", "module_aiter_enum.so"),
        replace(plans.python_module("pa_1", "pa_1.so"), symbol="pa_1", call="pa(mtp=1)"),
    ),
)
SYMBOLS = ("qola::ns::mha_fwd(int, bool)", "qola::ns::version")
ARCHIVE: FileRecord = {"path": "lib/libqola_ns.a", "size": 7, "sha256": "0" * 64}
VERSIONS = {"rocm_version": "7.2", "hip_version": "7.2.5", "clang_version": "22"}


def library(path: str, *symbols: str) -> LibraryFacts:
    return {"path": path, "size": 5, "sha256": "1" * 64, "symbols": symbols}


FORWARD = {"ns_libmha_fwd.so": library("lib/ns_libmha_fwd.so", *SYMBOLS)}


def record(
    archs: Sequence[str] = BOTH,
    plan: Plan = PLAN,
    libraries: Mapping[str, LibraryFacts] = FORWARD,
    triton: LibraryRecord | None = None,
    **origin: Any,
) -> BundleRecord:
    return manifest_record(
        plan,
        libraries,
        archs=archs,
        plan_sha256="2" * 64,
        origin={"kind": "local", "path": "/home/someone/aiter", **origin},
        toolchain=VERSIONS,
        generated_at=None,
        triton=triton,
    )


def test_manifest_json_has_the_kernels_of_each_library() -> None:
    """Prevents: manifest.json lists missing libraries, or kernels of another module."""
    found = record()
    (module,) = found["modules"]
    assert module["kernels"] == {
        "fwd": {"count": 2, "names": ["k1", "k2"]},
        "fwd_splitkv": {"count": 1, "names": ["s1"]},
    }
    assert module["entry_points"] == ["qola::ns::mha_fwd"]
    assert (module["name"], module["md_name"]) == ("libmha_fwd", "ns_libmha_fwd")
    (code_object,) = module["code_objects"]
    assert list(code_object.items()) == sorted(asdict(CODE_OBJECT).items())
    assert found["summary"] == {"total": 1, "success": 1, "failed": 0}
    assert "/home" not in json.dumps(found)
    source = record(kind="git", commit="a" * 40, remote="ssh://me:secret@example.org:2222/aiter")
    assert source["inputs"]["aiter"]["source"]["remote"] == "ssh://example.org:2222/aiter"


def test_manifest_json_has_the_calls_of_functions() -> None:
    """Prevents: manifest.json does not distinguish functions of AITER's second JIT."""
    library_path = f"aiter_jit/{function_file('pa_1.so')}"
    assert library_path == "aiter_jit/build/pa_1/lib.so"
    (module,) = record(libraries={"pa_1.so": library(library_path, "pa_1")})["modules"]
    assert (module["name"], module["md_name"], module["call"]) == ("pa_1", "pa_1", "pa(mtp=1)")
    assert (module["library"], module["entry_points"]) == (library_path, ["pa_1"])


def test_cmake_package_names_its_files() -> None:
    """Prevents: a CMake package searches for libraries under wrong names."""
    lazy_record: BundleRecord = {**record(), "lazy": True}
    config = config_files.texts(lazy_record)["lib/cmake/qola/qola-config.cmake"]
    assert 'set(qola_ARCHS "gfx942" "gfx950")' in config
    assert "set(qola_LAZY TRUE)" in config
    files = config_files.texts({**lazy_record, "static": ARCHIVE})
    forward = files["lib/cmake/qola/qola-mha_fwd.cmake"]
    assert 'set(_qola_mha_fwd_FILE "ns_libmha_fwd.so")' in forward
    assert 'set(qola_mha_fwd_ARCHS "gfx942" "gfx950")' in forward
    static = files["lib/cmake/qola/qola-static.cmake"]
    assert 'set(_qola_static_FILE "libqola_ns.a")\nset(_qola_static_SIZE 7)\n' in static
    assert "lib/cmake/qola/qola-static.cmake" not in config_files.texts(lazy_record)
    assert "lib/cmake/qola/qola-mha_bwd.cmake" not in files
    # Without escapes, CMake parses this id as a list, a variable and an escape sequence.
    aiter: AiterRecord = {**lazy_record["inputs"]["aiter"], "version": "", "id": 'a;b$c"d\\e'}
    odd: BundleRecord = {**lazy_record, "inputs": {**lazy_record["inputs"], "aiter": aiter}}
    config = config_files.texts(odd)["lib/cmake/qola/qola-config.cmake"]
    assert 'set(qola_AITER_VERSION "a\\;b\\$c\\"d\\\\e")' in config


def test_compatible_versions_of_a_cmake_package() -> None:
    """Prevents: before 1.0, CMake accepts an incompatible minor version or rejects a compatible."""
    file = "lib/cmake/qola/qola-config-version.cmake"
    text = config_files.texts({**record(), "qola": "0.3.1"})[file]
    assert '"${PACKAGE_FIND_VERSION_MAJOR}.${PACKAGE_FIND_VERSION_MINOR}"' in text
    assert '_qola_wanted VERSION_EQUAL "0.3"' in text
    text = config_files.texts({**record(), "qola": "2.3.1"})[file]
    assert 'set(_qola_wanted "${PACKAGE_FIND_VERSION_MAJOR}")' in text
    assert '_qola_wanted VERSION_EQUAL "2"' in text


def test_pkg_config_files_of_existing_libraries() -> None:
    """Prevents: a pkg-config file exists without its library, or a library without its file."""
    found = config_files.texts(record())
    assert [name for name in found if name.endswith(".pc")] == ["lib/pkgconfig/qola-mha-fwd.pc"]
    text = found["lib/pkgconfig/qola-mha-fwd.pc"]
    assert "Libs: -L${libdir} -l:ns_libmha_fwd.so -lamdhip64\n" in text
    found = config_files.texts({**record(), "static": ARCHIVE})
    libs = found["lib/pkgconfig/qola-static.pc"].splitlines()[-1]
    assert libs == "Libs: -L${libdir} -l:libqola_ns.a -lamdhip64 -lstdc++ -lm -lpthread -ldl"


def test_manifest_json_of_a_restricted_build() -> None:
    """Prevents: manifest.json lists kernels and archs that --@qola//:archs excludes."""
    found = record(("gfx950",))
    assert (found["archs"], found["gpu_archs"]) == (["gfx950"], "gfx950")
    (module,) = found["modules"]
    assert module["kernels"]["fwd"]["names"] == ["k1"]
    assert module["kernels"]["fwd_splitkv"]["count"] == 1
    assert module["code_objects"] == []


def test_manifest_json_has_the_keys_of_rocm_qola() -> None:
    """Prevents: readers of ROCm/QoLA's manifest.json miss a key."""
    found = record()
    top = {"generated_at", "aiter_root", "manifest_src", "gpu_archs", "modules", "summary"}
    assert top <= found.keys()
    assert found["gpu_archs"] == "gfx942;gfx950"
    assert {"md_name", "success", "error", "so_path", "duration_s"} <= found["modules"][0].keys()


def sbom_text(directory: Path, **origin: Any) -> str:
    texts = {c: licenses.identify(c, MIT) for c in licenses.COMPONENTS}
    texts["aiter"] = licenses.identify("aiter", "Ask first.")
    write(directory, {"lib/a.so": ""})
    files = {"lib/a.so": ("aiter", "qola")}
    created = datetime(1970, 1, 1)
    return sbom.to_json(
        sbom.document(record(**origin), directory, files, texts, name="small", created=created)
    )


def test_sbom_has_the_origin_of_aiter(tmp_path: Path) -> None:
    """Prevents: an SBOM contains a password or a local path, or lacks the commit."""
    git = {"kind": "git", "commit": "a" * 40}
    text = sbom_text(tmp_path, **git, remote="https://example.org/aiter")
    assert f'"git+https://example.org/aiter@{"a" * 40}"' in text
    assert sbom_text(tmp_path, **git, remote="https://me:secret@example.org/aiter") == text
    assert "/srv" not in sbom_text(tmp_path, **git, remote="/srv/aiter.git")
    assert "/home" not in sbom_text(tmp_path)
    patch = {"name": "0001.patch", "sha256": "3" * 64}
    assert "0001.patch" in sbom_text(tmp_path, patches=[patch])


def test_sbom_has_the_text_of_unknown_licenses(tmp_path: Path) -> None:
    """Prevents: an SBOM names a wrong license, or lacks the text of an unknown license."""
    document = json.loads(sbom_text(tmp_path))
    licensed = document["files"][0]["licenseConcluded"]
    assert sorted(licensed.split(" AND ")) == ["LicenseRef-aiter", "MIT"]
    assert document["hasExtractedLicensingInfos"][0]["extractedText"] == "Ask first."


def test_tar_file_depends_only_on_names_and_contents(tmp_path: Path) -> None:
    """Prevents: a tar file depends on owner, time or order of files."""
    long_name = "d/" + "x" * 120
    names = ("a", "b/c.so", long_name)
    for root, order, mode in (("one", names, 0o600), ("two", reversed(names), 0o777)):
        for name in order:
            write(tmp_path / root, {name: name})
            os.chmod(tmp_path / root / name, mode)
            os.utime(tmp_path / root / name, (mode, mode))
        pack(tmp_path / root, tmp_path / f"{root}.tar", "top")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as archive:
        modes = {member.name: oct(member.mode) for member in archive}
    assert modes == {
        "top": "0o755",
        "top/a": "0o644",
        "top/b": "0o755",
        "top/b/c.so": "0o755",
        "top/d": "0o755",
        f"top/{long_name}": "0o644",
    }


@pytest.mark.parametrize(
    ("library", "generated_at", "message"),
    [
        ("other_libmha_fwd.so", "", r"not a library of .*plan\.json"),
        ("module_aiter_enum.so", "", "a Python module, which contains pybind11"),
        ("ns_libmha_fwd.so", "yesterday", "generated_at"),
    ],
)
def test_invalid_inputs_are_errors(
    library: str, generated_at: str, message: str, tmp_path: Path
) -> None:
    """Prevents: a bundle contains a library of another manifest, or an invalid time."""
    plan = tmp_path / "plan.json"
    plan.write_text(PLAN.to_json())
    inputs = BundleInputs(
        name="small",
        archs=("gfx950",),
        libraries=(LibraryInput(f"bin/{library}", ()),),
        headers=(),
        plan=str(plan),
        tree="tree",
        configs=(),
        license_files=(),
        qola_license="LICENSE",
        rocm="rocm.json",
        generated_at=generated_at,
    )
    with pytest.raises(BundleError, match=message):
        build(inputs, tmp_path / "out")


TRITON_PLAN = plans.plan(
    qola="1.0", triton=(plans.triton_kernel("attention_forward", "gfx90a", "gfx942"),)
)
PACKS: dict[str, FileRecord] = {
    arch: {"path": f"lib/ns_triton-{arch}.qpack", "size": 9, "sha256": "2" * 64}
    for arch in ("gfx942", "gfx90a")
}
TRITON_SYMBOLS = ("qola_ns_triton_find", "qola_ns_triton_launch")


def triton_bundle() -> BundleRecord:
    facts = library("lib/ns_triton.so", *TRITON_SYMBOLS)
    entry = triton_record(TRITON_PLAN, facts, PACKS, "triton 3.9.0")
    return record(("gfx90a", "gfx942"), TRITON_PLAN, triton=entry)


def test_manifest_json_has_the_triton_library_and_its_packs() -> None:
    """Prevents: manifest.json lacks packs or kernels."""
    (module,) = triton_bundle()["modules"]
    assert (module["name"], module["md_name"], module["size"]) == ("triton", "ns_triton", 5)
    names = ["attention_forward-HDIM_64-gfx90a", "attention_forward-HDIM_64-gfx942"]
    assert module["kernels"] == {"attention_forward": {"count": 2, "names": names}}
    assert module["archs"] == [pack["arch"] for pack in module["packs"]] == ["gfx90a", "gfx942"]
    assert module["packs"][1]["path"] == "lib/ns_triton-gfx942.qpack"
    assert triton_bundle()["summary"]["total"] == 1


def test_cmake_and_pkg_config_find_the_triton_library() -> None:
    """Prevents: find_package or pkg-config misses the library, or reports wrong archs."""
    # The archs of other libraries do not restrict the archs of this library.
    bundle: BundleRecord = {**triton_bundle(), "archs": ["gfx942"]}
    files = config_files.texts(bundle)
    text = files["lib/cmake/qola/qola-triton.cmake"]
    assert 'set(_qola_triton_FILE "ns_triton.so")\nset(_qola_triton_SIZE 5)\n' in text
    assert 'set(qola_triton_ARCHS "gfx90a" "gfx942")\n' in text
    assert '_PACKS "ns_triton-gfx90a.qpack" "ns_triton-gfx942.qpack")\n' in text
    text = files["lib/pkgconfig/qola-triton.pc"]
    assert "Libs: -L${libdir} -l:ns_triton.so -lamdhip64\n" in text
    assert "archs=gfx90a gfx942\n" in text


def test_sbom_of_only_triton_kernels(tmp_path: Path) -> None:
    """Prevents: the SBOM lists AITER without its code, or the MIT license for user kernels."""
    files: dict[str, list[str]] = {"lib/ns_triton.so": ["qola"], "lib/ns_triton-gfx942.qpack": []}
    write(tmp_path, dict.fromkeys(files, ""))
    texts = {"qola": licenses.identify("qola", MIT)}
    created = datetime(1970, 1, 1)
    document = sbom.document(triton_bundle(), tmp_path, files, texts, name="small", created=created)
    written = json.loads(sbom.to_json(document))
    packages = {package["name"]: package.get("versionInfo") for package in written["packages"]}
    assert packages == {"small": None, "qola": "1.0", "ROCm HIP": "7.2.5", "Triton": "3.9.0"}
    licensed = {file["fileName"]: file.get("licenseConcluded") for file in written["files"]}
    assert licensed["./lib/ns_triton.so"] == "MIT"
    assert licensed["./lib/ns_triton-gfx942.qpack"] in (None, "NOASSERTION")


def test_triton_version_comes_from_the_packs(tmp_path: Path) -> None:
    """Prevents: the SBOM names another Triton version than the compiler of the kernels."""
    metadata: Any = {"name": "f-gfx942", "arch": "gfx942", "triton": "3.9.0"}
    file = tmp_path / "a.qpack"
    file.write_bytes(pack_built([Built("f", b"code", metadata)]))
    assert compiler_of({"gfx942": str(file)}) == "triton 3.9.0"


def test_inputs_as_the_rule_writes_them() -> None:
    """Prevents: qola ignores the Triton library among the inputs of the rule."""
    lists = ("archs", "names", "libraries", "headers", "configs", "license_files")
    texts = ("name", "plan", "tree", "qola_license", "rocm", "generated_at")
    triton = {"library": "a.so", "packs": {"gfx942": "a.qpack"}, "headers": {"a.h": "b/a.h"}}
    data: dict[str, Any] = {key: [] for key in lists} | dict.fromkeys(texts, "x")
    data |= {"lazy": None, "static": None, "torch": None}
    inputs = reader(BundleInputs)({**data, "triton": triton})
    assert inputs.triton == TritonInput("a.so", {"gfx942": "a.qpack"}, {"a.h": "b/a.h"})
    assert reader(BundleInputs)({**data, "triton": None}).triton is None
