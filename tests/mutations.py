"""Breaks one documented feature after the other in a copy, and expects a test to fail.

    QOLA_TEST_AITER_TREE=<an unpacked AITER wheel> python tests/mutations.py [NAME...]

A row of `MUTATIONS` is a feature of docs/internals/features.md. tests/tools/test_pages.py checks
that each row still applies; this program also runs the tests, which takes minutes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Mutation:
    """A change that breaks a feature.

    Attributes:
        old: text that occurs once in the file.
        test: a file of tests, with the names of the tests that fail, if they are few.
    """

    feature: str
    file: str
    old: str
    new: str
    test: str


MUTATIONS = (
    Mutation(
        "archs of the manifest, the machine, `GPU_ARCHS`",
        "qola/manifest/archs.py",
        "    if requested:\n",
        "    if not requested and requested:\n",
        "tests/plan/test_planner.py::test_precedence_of_archs",
    ),
    Mutation(
        "unreachable kernels are left out",
        "qola/codegen/ck/driver.py",
        "if request.keep_unreachable or row.key not in self._unreachable",
        "if True",
        "tests/codegen/test_codegen_full.py::test_unreachable_kernels_are_omitted",
    ),
    Mutation(
        "`qola plan --estimate`",
        "qola/query/estimate.py",
        "yield library.at(archs, len(module.kernels)) + Cost(0, 0, linked)",
        "yield Cost(0, 0, linked)",
        "tests/cli/test_estimate.py::test_cores_divide_but_not_the_longest_compile",
    ),
    Mutation(
        "`qola completion`",
        "qola/cli/machine.py",
        "around.console.line(shtab.complete(args.program, shell=args.shell))",
        "pass",
        "tests/cli/test_cli.py::test_completion",
    ),
    Mutation(
        "patches",
        "qola/fetch/patches.py",
        "        return tree.write()\n",
        "        return ()\n",
        "tests/aiter/test_patches.py",
    ),
    Mutation(
        "known faults of trees are reported",
        "qola/aiter/known_faults.py",
        'if all(holds(tree, condition) for condition in fault["when"]):',
        "if False:",
        "tests/aiter/test_known_faults.py",
    ),
    Mutation(
        "plans warn of kernels with a proven fault, or refuse them",
        "qola/aiter/proven_faults.py",
        "return kernel.sha256 in fault.code_objects",
        "return False",
        "qola_lab/tests/trees/test_proven_faults.py",
    ),
    Mutation(
        "batches of norms, GEMMs and MoE",
        "qola/plan/batches.py",
        "    enough = max(2, size // 2)\n",
        "    enough = size = 10**9\n",
        "tests/plan/test_batches.py",
    ),
    Mutation(
        "`qola build --lazy`, `qola pack`",
        "rules/private/lazy.bzl",
        '        lazy = lazy + ".sources",\n',
        "",
        "tests/e2e/test_lazy_build.py::test_lazy_and_full_in_one_directory",
    ),
    Mutation(
        "prebuilt bundles: signatures, records",
        "qola/prebuilt/signature.py",
        "            key.verify(data, parsed)\n",
        "",
        "tests/prebuilt/test_prebuilt_files.py::test_wrong_signatures",
    ),
    Mutation(
        "prebuilt bundles: older records and false servers",
        "qola/prebuilt/store.py",
        "    if record.serial < known:\n",
        "    if False:\n",
        "tests/prebuilt/test_prebuilt_hostile.py::test_old_record_is_rejected",
    ),
    Mutation(
        "prebuilt bundles: fetch, sources, proxies",
        "qola/prebuilt/sources.py",
        " or urllib.request.proxy_bypass(host, proxies)",
        "",
        "tests/prebuilt/test_prebuilt_http.py::test_hosts_that_need_no_proxy",
    ),
    Mutation(
        "the cache directory",
        "qola_base/cache.py",
        "if status.st_uid not in trusted and (",
        "if False and (",
        "tests/common/test_cache.py",
    ),
    Mutation(
        "`qola doctor`, `qola cache --prune`",
        "qola/build/housekeeping.py",
        "if not path.is_dir() or _used(path) >= before:",
        "if path:",
        "tests/build/test_housekeeping.py",
    ),
    Mutation(
        "Python wheels and their platforms",
        "qola/bundle/platform_policy.py",
        "            missing.add(version)\n",
        "            pass\n",
        "tests/bundle/test_wheel.py",
    ),
    Mutation(
        "configs and rules",
        "qola/kernel/rules.py",
        "        for wrong in rule.check(config, known)\n",
        "        for wrong in ()\n",
        "qola_lab/tests/fmha/test_rules.py",
    ),
    Mutation(
        "verdicts that are stored, and resumed runs",
        "qola_lab/verify/store.py",
        "return None if content is None else reader(kind)(parse_json(content))",
        "return None",
        "qola_lab/tests/verify/test_store.py",
    ),
    Mutation(
        "`qola init --model`: kernels of each layer, and a manifest",
        "qola_lab/models/config.py",
        "[FULL if layer < first else SLIDING for layer in range(count)]",
        "[FULL] * count",
        "qola_lab/tests/models/test_model_config.py",
    ),
    Mutation(
        "`qola report` and its page",
        "qola/report/page.py",
        'f"<pre>{escape(texts)}</pre>\\n"',
        'f"<pre>{texts}</pre>\\n"',
        "tests/report/test_report.py::test_page_is_well_formed_and_escaped",
    ),
    Mutation(
        "image without a compiler",
        "examples/serving/remove-jit",
        '"$rocm/amdgcn"',
        "",
        "tests/tools/test_serving_image.py::test_removes_files_that_only_the_jit_reads",
    ),
    Mutation(
        "exit codes",
        "qola_base/errors.py",
        '    PLAN = 6, "the manifest and AITER do not match"\n',
        '    PLAN = 26, "the manifest and AITER do not match"\n',
        "tests/cli/test_exit_codes.py",
    ),
    Mutation(
        "links, examples and names of the documentation",
        "tests/hip/BUILD.bazel",
        'name = "prim_test"',
        'name = "primitives_test"',
        "tests/tools/test_pages.py::test_features_have_tests",
    ),
)


def survives(mutation: Mutation, root: Path) -> bool:
    """Return whether the mutation's tests pass with it in a copy of the checkout."""
    file = root / mutation.file
    before = file.read_text(encoding="utf-8")
    file.write_text(before.replace(mutation.old, mutation.new), encoding="utf-8")
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", mutation.test]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    file.write_text(before, encoding="utf-8")
    # 1: tests failed; an error of the collection, which has other codes, is no test of a feature.
    print(run.stdout.splitlines()[-1] if run.stdout else run.stderr, flush=True)
    return run.returncode != 1


def main(names: list[str]) -> int:
    """Try the mutations whose features or files contain one of the names; by default all."""
    chosen = [m for m in MUTATIONS if not names or any(n in m.feature + m.file for n in names)]
    alive = []
    with tempfile.TemporaryDirectory() as directory:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
        tracked = {Path(name) for name in listed.stdout.decode().splitlines()}
        copied = {ROOT / parent for path in tracked for parent in (path, *path.parents)}

        def unknown(place: str, entries: list[str]) -> list[str]:
            return [name for name in entries if Path(place, name) not in copied]

        root = Path(copytree(ROOT, Path(directory, "qola"), symlinks=True, ignore=unknown))
        for mutation in chosen:
            print(f"{mutation.feature}: {mutation.test}", end=": ", flush=True)
            alive += [mutation.feature] if survives(mutation, root) else []
    print(f"{len(chosen)} mutations, {len(alive)} without a failing test", *alive, sep="\n  ")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
