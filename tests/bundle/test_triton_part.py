"""manifest.json, SBOM and package files of the library of kernels in Triton."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from qola.bundle import cmake, licenses, pkgconfig, sbom
from qola.bundle.build import BundleInputs, TritonInput, compiler_of
from qola.bundle.record import BundleRecord, FileFacts, LibraryFacts, manifest_record, triton_record
from qola.triton.library import Built, pack_built
from qola_base.json_types import reader
from tests.support import plans
from tests.support.folders import write

MIT = (Path(__file__).resolve().parents[2] / "LICENSE").read_text(encoding="utf-8")
PLAN = plans.plan(
    qola="1.0", triton=(plans.triton_kernel("attention_forward", "gfx90a", "gfx942"),)
)
PACKS = {
    arch: FileFacts(f"lib/ns_triton-{arch}.qpack", 9, "2" * 64) for arch in ("gfx942", "gfx90a")
}
SYMBOLS = ("qola_ns_triton_find", "qola_ns_triton_launch")


def record(**changes: Any) -> BundleRecord:
    library = LibraryFacts("lib/ns_triton.so", 7, "1" * 64, SYMBOLS)
    return manifest_record(
        replace(PLAN, **changes),
        {},
        archs=("gfx90a", "gfx942"),
        plan_sha256="3" * 64,
        origin={"kind": "local"},
        toolchain={"rocm_version": "7.2", "hip_version": "7.2.5", "clang_version": "22"},
        generated_at=None,
        triton=triton_record(PLAN, library, PACKS, "triton 3.9.0"),
    )


def test_manifest_json_has_library_and_packs() -> None:
    """Prevents: manifest.json lacks packs or kernels."""
    (module,) = record()["modules"]
    assert (module["name"], module["md_name"], module["size"]) == ("triton", "ns_triton", 7)
    names = ["attention_forward-HDIM_64-gfx90a", "attention_forward-HDIM_64-gfx942"]
    assert module["kernels"] == {"attention_forward": {"count": 2, "names": names}}
    assert module["archs"] == [pack["arch"] for pack in module["packs"]] == ["gfx90a", "gfx942"]
    assert module["packs"][1]["path"] == "lib/ns_triton-gfx942.qpack"
    assert record()["summary"]["total"] == 1


def test_cmake_and_pkg_config_find_the_library() -> None:
    """Prevents: find_package or pkg-config misses the library, or reports wrong archs."""
    # The archs of other libraries do not restrict the archs of this library.
    bundle: BundleRecord = {**record(), "archs": ["gfx942"]}
    text = cmake.package(bundle)["lib/cmake/qola/qola-triton.cmake"]
    assert 'set(_qola_triton_FILE "ns_triton.so")\nset(_qola_triton_SIZE 7)\n' in text
    assert 'set(qola_triton_ARCHS "gfx90a" "gfx942")\n' in text
    assert '_PACKS "ns_triton-gfx90a.qpack" "ns_triton-gfx942.qpack")\n' in text
    text = pkgconfig.texts(bundle)["lib/pkgconfig/qola-triton.pc"]
    assert "Libs: -L${libdir} -l:ns_triton.so -lamdhip64\n" in text
    assert "archs=gfx90a gfx942\n" in text


def test_sbom_of_only_triton_kernels(tmp_path: Path) -> None:
    """Prevents: the SBOM lists AITER without its code, or the MIT license for user kernels."""
    files: dict[str, list[str]] = {"lib/ns_triton.so": ["qola"], "lib/ns_triton-gfx942.qpack": []}
    write(tmp_path, dict.fromkeys(files, ""))
    texts = {"qola": licenses.identify("qola", MIT)}
    created = datetime(1970, 1, 1)
    document = sbom.document(record(), tmp_path, files, texts, name="small", created=created)
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
