"""Health reports: code objects, sorted differences, stored verdicts, page and JSON."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from qola.cli.command_line import main
from qola_base.code_object.reader import CodeObject
from qola_base.errors import ExitCode
from qola_lab.problems import make_problem
from qola_lab.trees.emulate import DIED, EmulationRequest, share_verdicts, untried, verdict_of
from qola_lab.trees.examine import examine
from qola_lab.trees.report import (
    HealthReport,
    KernelHealth,
    KernelVerdict,
    TreeHealth,
    compare_trees,
    render,
)
from qola_lab.verify.case import Sample
from qola_lab.verify.expected import Verdict
from qola_lab.verify.outcome import Outcome, Trial, to_json
from qola_lab.verify.replay import ReplayError
from tests.support.later_tree import write_later_tree

FORWARD = "gfx942/fmha_v3_fwd/MI300"
FAULTY = f"hsa/{FORWARD}/fwd_hd128_bf16_rtna_group.co"
FAULTS = {"a": ("one",), "b": ("one", "two")}
KERNEL = KernelHealth("hsa/k.co", "gfx950", "a", "k", 9, 8, 0, 8, 0, 0, 0, 0, 256, 8, "waves")


def tree(name: str, *kernels: KernelHealth) -> TreeHealth:
    return TreeHealth(name, "", (), kernels)


@pytest.fixture(scope="module")
def trees(aiter_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write two trees of code objects, without CK: the second changes, adds and removes one."""
    found = []
    source = aiter_tree / "aiter_meta/hsa" / FORWARD
    names = {
        "old": ["fwd_hd128_bf16_rtna.co", "fwd_hd128_bf16_rtz.co"],
        "new": ["fwd_hd128_bf16_rtna.co", "fwd_hd128_bf16_rtna_group.co"],
    }
    for tree_name, files in names.items():
        root = write_later_tree(tmp_path_factory.mktemp("trees") / tree_name)
        shutil.rmtree(root / "hsa", ignore_errors=True)
        (root / "hsa" / FORWARD).mkdir(parents=True)
        for file in files:
            shutil.copy(source / file, root / "hsa" / FORWARD)
        found.append(root)
    # Another kernel in a file of the same name.
    other = found[1] / "hsa" / FORWARD / "fwd_hd128_bf16_rtna.co"
    other.write_bytes((source / "fwd_hd128_bf16_causal_rtna.co").read_bytes())
    (found[1] / "hsa/damaged.co").write_bytes(b"\x7fELF")
    return found[0], found[1]


def test_two_trees_are_compared(
    trees: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: an unreported changed, new or faulty kernel, or figures unlike its metadata."""
    command = ["health", "--aiter", *map(str, trees), "--json", "-o", "h.html", "-q"]
    assert main(command, {}, directory=tmp_path) == ExitCode.WRONG
    found = json.loads(capsys.readouterr().out)
    kinds = [difference["kind"] for difference in found["differences"]]
    assert (kinds[0], kinds[-1], len(kinds)) == ("fails now", "removed", 3)
    assert found["differences"][0]["key"] == FAULTY
    assert "sha256" in found["differences"][1]["changes"]
    before, after = found["trees"]
    assert list(after["unread"]) == ["hsa/damaged.co"]
    # As `qola compat` prints them.
    checks = [check.to_dict() for check in examine(trees[0]).checks]
    assert before["checks"] == [check for check in checks if check in before["checks"]]
    assert before["checks"][0]["check"] == "tree"
    (faulty,) = [kernel for kernel in after["kernels"] if kernel["key"] == FAULTY]
    assert (faulty["proven"], faulty["state"]) == (["forward-sequence-without-keys"], "failed")
    code = CodeObject.read((trees[1] / FAULTY).read_bytes())
    (kernel,) = code.kernels.values()
    assert faulty["sha256"] == code.sha256
    assert faulty["vgprs"] == kernel.resources.vgprs > 0
    assert faulty["lds"] == kernel.resources.lds > 0
    assert 1 <= faulty["waves"] <= 8
    page = (tmp_path / "h.html").read_text("utf-8")
    assert "proven: forward-sequence-without-keys" in page
    assert page.index("fails now") < page.index("removed")


def test_a_wheel_is_read_as_its_tree(
    trees: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a wheel that must be unpacked first, or a traceback for an invalid wheel."""
    wheel = shutil.make_archive(str(tmp_path / "aiter"), "zip", trees[0])
    file = Path(wheel).rename(tmp_path / "aiter-1.whl")
    (tmp_path / "bad.whl").write_text("no archive")
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "cache")}
    command = ["health", "--json", "-q", "--aiter"]
    assert main([*command, str(file), str(trees[0])], environ, directory=tmp_path) == ExitCode.DONE
    found = json.loads(capsys.readouterr().out)
    assert [tree_["name"] for tree_ in found["trees"]] == ["aiter-1.whl", "old"]
    assert found["differences"] == []
    assert len(found["trees"][0]["kernels"]) == 2
    assert main([*command, "bad.whl"], environ, directory=tmp_path) == ExitCode.AITER
    assert "a wheel of AITER (.whl)" in capsys.readouterr().out


def test_patterns_and_names(
    trees: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: an ignored pattern, or confusion of two trees with equal names."""
    command = ["health", "--aiter", f"a={trees[0]}", f"b={trees[1]}", "-q"]
    assert main([*command, "--kernels", "*_rtna.co"], {}, directory=tmp_path) == ExitCode.DONE
    output = capsys.readouterr().out
    assert "a: 1 kernels: 0 passed, 0 failed, 1 untried" in output
    assert "a -> b" in output
    assert main([*command, "--kernels", "nothing"], {}, directory=tmp_path) == ExitCode.ERROR
    assert "no code object nothing" in capsys.readouterr().err
    command = ["health", "--aiter", f"a={trees[0]}", f"a={trees[1]}", "-q"]
    assert main(command, {}, directory=tmp_path) == ExitCode.ERROR
    assert "two trees named a" in capsys.readouterr().err


def test_a_tree_of_another_configuration_has_code_objects(
    trees: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a comparison that stops at a tree whose configuration qola cannot read."""
    shutil.copytree(trees[0] / "hsa", tmp_path / "odd/hsa")
    command = ["health", "--aiter", "odd", "--json", "-q"]
    assert main(command, {}, directory=tmp_path) == ExitCode.DONE
    (found,) = json.loads(capsys.readouterr().out)["trees"]
    assert len(found["kernels"]) == 2
    assert [check["status"] for check in found["checks"]] == ["broken"]


def test_the_worst_difference_comes_first() -> None:
    """Prevents: a newly failing kernel listed below thousands of changed digests."""
    passed, failed = KernelVerdict("passed", 1), KernelVerdict("failed", 1, 2.0, ("wrong",))
    changes = {
        "fails now": (replace(KERNEL, verdict=passed), replace(KERNEL, verdict=failed)),
        "not tried any more": (replace(KERNEL, verdict=passed), KERNEL),
        "spills more": (KERNEL, replace(KERNEL, sha256="b", vgpr_spills=1)),
        "lower occupancy": (KERNEL, replace(KERNEL, sha256="b", waves=4)),
        "other resources": (KERNEL, replace(KERNEL, sha256="b", lds=4)),
        "passes now": (replace(KERNEL, verdict=failed), replace(KERNEL, verdict=passed)),
        "other code": (KERNEL, replace(KERNEL, sha256="b")),
    }
    # Sorting by name would reverse the order.
    names = {kind: f"{9 - number}" for number, kind in enumerate(changes)}
    old = tree("old", *(replace(pair[0], key=names[kind]) for kind, pair in changes.items()))
    new = tree("new", *(replace(pair[1], key=names[kind]) for kind, pair in changes.items()))
    assert [difference.kind for difference in compare_trees([old, new])] == list(changes)
    assert compare_trees([old, old]) == ()
    # A kernel that already failed has one more fault.
    (old, new) = (tree(n, replace(KERNEL, sha256=n, proven=p)) for n, p in FAULTS.items())
    (found,) = compare_trees([old, new])
    assert (found.kind, "proven one -> one, two" in found.changes) == ("fails now", True)


def test_trees_share_verdicts() -> None:
    """Prevents: an untried kernel of an unbuildable tree, although an equal kernel was tried."""
    failed, not_built = KernelVerdict("failed", 1, 2.0, ("wrong",)), untried("does not build")
    new = tree("new", replace(KERNEL, verdict=failed))
    old = tree("old", replace(KERNEL, verdict=not_built), replace(KERNEL, sha256="b", verdict=None))
    found = share_verdicts([old, new])
    assert [[kernel.verdict for kernel in tree_.kernels] for tree_ in found] == [
        [failed, None],
        [failed],
    ]


def test_patterns_select_the_sample() -> None:
    """Prevents: a sample compiled although --kernels excludes it, or a requested one skipped."""
    assert EmulationRequest().has_sample
    assert EmulationRequest().takes("fmha_fwd_d32_fp16")
    assert not EmulationRequest(patterns=("hsa/*",)).has_sample
    request = EmulationRequest(patterns=("hsa/*", "*_bf16_*"))
    assert request.has_sample
    assert [request.takes(f"fmha_fwd_d32_{dtype}_batch") for dtype in ("bf16", "fp16")] == [
        True,
        False,
    ]


def test_the_sample_is_compared() -> None:
    """Prevents: exit code 0, or no difference, for a kernel of CK that fails now."""
    passed, failed = KernelVerdict("passed", 1), KernelVerdict("failed", 1, 2.0, ("wrong",))
    old = replace(tree("old"), sample={"gfx942/k": passed, "gfx950/k": passed, "gfx950/l": passed})
    new = replace(tree("new"), sample={"gfx942/k": failed, "gfx950/k": passed, "gfx950/m": passed})
    assert (old.failed, new.failed) == (False, True)
    kinds = {
        (difference.kind, difference.arch, difference.symbol)
        for difference in compare_trees([old, new])
    }
    assert kinds == {("fails now", "gfx942", "k"), ("not tried any more", "gfx950", "l")}
    report = HealthReport((new, old), compare_trees([new, old]))
    # The page also lists the failed kernel of an earlier tree.
    failures = render(report).partition('id="failed-table"')[2].partition("</table>")[0]
    assert "gfx942/k" in failures
    assert "wrong" in failures


def test_verdicts_match_those_of_verify() -> None:
    """Prevents: a failed kernel reported with another state after a change of verify's JSON."""
    problem = make_problem("fwd", "fp16", seqlen_q=2, seqlen_k=2, nhead_q=1, hdim=32)
    wrong = Verdict("o", float("inf"), 1, 4, (0,), 1.0, 2.0, 0.1)
    trials = (Trial(Sample(problem), ("k",), (wrong,), (), ""),)
    outcomes = [Outcome("k", "gfx950", trials), Outcome("u", "gfx950", (), "no problem")]
    failed, untried = map(verdict_of, json.loads(to_json(outcomes))["kernels"])
    assert (failed.state, failed.problems, failed.worst) == ("failed", 1, 1e300)
    assert "o[0] is 1 in place of 2" in failed.reasons[0]
    assert untried == KernelVerdict("untried", reasons=("no problem",))
    stopped = Trial(Sample(problem), ("k",), (), (), "k+0x8 v_x: unsupported: not emulated")
    (outcome,) = json.loads(to_json([Outcome("k", "gfx950", (stopped,))]))["kernels"]
    assert verdict_of(outcome).state == "untried"


def test_the_error_of_a_died_process_is_known() -> None:
    """Prevents: a crash of one kernel that leaves others untried, since an error title changed."""
    assert ReplayError.default_title == DIED


def test_a_page_escapes_and_lists_the_sample() -> None:
    """Prevents: names that are not escaped in HTML, or a page without the sample of CK."""
    sample = {"gfx950/fmha_fwd_x": KernelVerdict("passed", 1, 0.5)}
    sampled = replace(tree("<b>", KERNEL), sample=sample)
    page = render(HealthReport((sampled,), ()))
    assert "<b>" not in page.partition("<body>")[2]
    assert "fmha_fwd_x" in page
