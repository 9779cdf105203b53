"""Errors extracted from Bazel's output: compiler messages, and each error of a rule once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qola.build.events import EventReader, FailedAction, TargetResult
from qola.build.results import (
    broken_below,
    describe_failure,
    failed_in,
    first_errors,
    read_findings,
    results_of,
)
from qola_base.errors import CodegenError, Finding, ManifestError, QolaError

CLANG = """\
In file included from fmha.cpp:3:
fmha.cpp:12:5: warning: unused variable 'x' [-Wunused-variable]
   12 |   int x;
      |       ^
\x1b[1mfmha.hpp:7:10: \x1b[31merror: \x1b[0muse of undeclared identifier 'kBlock'
    7 |   return kBlock;
      |          ^~~~~~
fmha.hpp:3:1: note: in instantiation of 'run' requested here
    3 | run();
      | ^
fmha.hpp:9:1: error: expected ';'
    9 | }
      | ^
fmha.hpp:11:1: error: a third
1 error generated when compiling for gfx950.
failed to execute:/usr/bin/clang++ -c fmha.cpp error: x
"""

LLD = """\
ld.lld: error: undefined symbol: aiter::mha_fwd(int)
>>> referenced by entry.cpp
clang++: error: linker command failed with exit code 1
"""


def test_first_errors_of_clang() -> None:
    """Prevents: a summary with warnings, notes and hipcc's command, or without the error."""
    assert first_errors(CLANG) == (
        "fmha.hpp:7:10: error: use of undeclared identifier 'kBlock'",
        "    7 |   return kBlock;",
        "      |          ^~~~~~",
        "fmha.hpp:9:1: error: expected ';'",
        "    9 | }",
        "      | ^",
    )


def test_first_errors_of_qola() -> None:
    """Prevents: a summary without Triton's message about why a kernel does not compile."""
    error = CodegenError(Finding("k.py: k: gfx942", "at 2:1:\nerror: no x", "code"), "no k")
    _, *findings = str(error).splitlines()
    text = f"a warning\nqola: CodegenError: {error}\nTarget failed"
    assert first_errors(text) == tuple(findings)


def test_broken_kernels_of_a_batch(tmp_path: Path) -> None:
    """Prevents: a batch name, which users do not know, instead of the broken kernel instances."""
    messages = "x.cpp:1:1: error: no\nqola: kernel instance k1 does not compile\n"
    (tmp_path / "said").write_text(messages + "qola: kernel instance k3 does not compile\n")
    batch = FailedAction("b", "QolaCompile", 1, tmp_path / "said")
    assert failed_in(batch) == ("k1", "k3")
    single = FailedAction("k2", "QolaCompile", 1, None)
    assert failed_in(single) == (single.name,)
    result = TargetResult(False, 1.0, {}, ("out/b.pic.o",))
    events = EventReader(failed={"out/b.pic.o": batch})
    assert broken_below(result, events) == ["k1", "k3"]
    text = describe_failure(result, events)
    first, *rest = text.splitlines()
    assert first == f"k1 and 1 more of {batch.name}: QolaCompile failed with exit code 1"
    assert rest == ["  x.cpp:1:1: error: no"]


def test_first_errors_of_the_linker() -> None:
    """Prevents: a link failure without the symbol's name."""
    assert first_errors(LLD)[0] == "ld.lld: error: undefined symbol: aiter::mha_fwd(int)"


def test_output_of_a_killed_tool() -> None:
    """Prevents: an empty summary for a compiler that died without an error message."""
    output = "".join(f"frame {n}\n" for n in range(30)) + "clang++: unable to execute: Killed\n"
    assert first_errors(output)[-2:] == ("frame 29", "clang++: unable to execute: Killed")
    assert len(first_errors(output)) == 10
    assert first_errors("") == ()


_FINDINGS = (
    Finding("it.toml:6 [build].architectures", "gfx95", "an arch:\ngfx942\n\ngfx950", "gfx950?"),
    Finding("it.toml:8", "", "nothing", severity="warning"),
    Finding("it.toml:9 [[modules]].reciept", "no such key", "a key"),
)
_ERROR = ManifestError(_FINDINGS)
# Output of Bazel 7.7: the text of fail twice, and once more for each target that depends on it.
_BAZEL = f"""\
ERROR: /x/host_python.bzl:111:17: An error occurred during the fetch of repository 'q':
   Traceback (most recent call last):
\tFile "/x/manifest.bzl", line 30, column 9, in _impl
Error in fail:\x20
qola: ManifestError: {_ERROR}
ERROR: no such package '@@q//':\x20
qola: ManifestError: {_ERROR}
ERROR: /w/BUILD.bazel:5:13: //:it depends on @@q//:it in repository @@q which failed to fetch.
ERROR: Analysis of target '//:it' failed; build aborted
INFO: Elapsed time: 0.1s
"""


def reader_of(stderr: str) -> EventReader:
    reader = EventReader(output="/w/bazel.log")
    for event in (
        {"id": {"progress": {}}, "progress": {"stderr": stderr}},
        {"id": {"buildFinished": {}}, "finished": {"exitCode": {"code": 1}}},
    ):
        reader.feed(json.dumps(event), 1.0)
    return reader


def test_findings_survive_bazel() -> None:
    """Prevents: a finding that loses a line, its fix or its place in Bazel's output."""
    assert read_findings(str(_ERROR)) == _FINDINGS
    assert read_findings("words\n" + str(_ERROR) + "\nmore\n") == _FINDINGS


def test_rule_error_is_shown_once() -> None:
    """Prevents: the user's error three times among sixty lines, or an error in an error."""
    with pytest.raises(ManifestError) as caught:
        results_of(reader_of(_BAZEL), {"it": "//:it"})
    assert str(caught.value) == str(_ERROR)


def test_bazel_error_is_shown() -> None:
    """Prevents: "see above", although Bazel's output is in a file."""
    output = "ERROR: no such target '//:it'\nERROR: Build did NOT complete successfully\n"
    with pytest.raises(QolaError) as caught:
        results_of(reader_of(output), {"it": "//:it"})
    assert "no such target '//:it'" in str(caught.value)
    assert "see /w/bazel.log" in str(caught.value)


def test_warnings_of_rules_are_read() -> None:
    """Prevents: a plan's warnings lost among Bazel's output."""
    line = "it.toml is planned with 1 warning, which `qola plan` shows"
    printed = f"qola: {line}\n"
    assert reader_of(f"{printed}INFO: a\n{printed}INFO: b\n").messages() == (line,)


_NO_TORCH = """\
qola: ToolchainError: no PyTorch to build for
  place:    torch of /v/bin/python
  found:    no package torch
  fix:      install it"""
# Events of Bazel 7.7.
_CAUSES = [
    {
        "configuredLabel": {
            "label": f"@@qola~~qola~qola_torch//:{name}",
            "configuration": {"id": "c"},
        }
    }
    for name in ("headers", "hip")
]
_DESCRIPTION = f"""\
in no_torch rule @@qola~~qola~qola_torch//:headers:\x20
Traceback (most recent call last):
\tFile "/x/no_torch.bzl", line 6, column 9, in _no_torch_impl
\t\tfail("\\n" + ctx.attr.message)
Error in fail:\x20

{_NO_TORCH}"""


def test_reason_of_a_failed_analysis_is_shown() -> None:
    """Prevents: "ANALYSIS_FAILURE" without a reason, if another module was built."""
    reader = reader_of("")
    refused = {"reason": "ANALYSIS_FAILURE"}
    custom_id = {"targetConfigured": {"label": "//:module_custom"}}
    fwd_id = {"targetCompleted": {"label": "//:libmha_fwd"}}
    events: list[dict[str, object]] = [
        {"id": cause, "aborted": {**refused, "description": _DESCRIPTION}} for cause in _CAUSES
    ]
    events.append({"id": custom_id, "children": _CAUSES, "aborted": refused})
    events.append({"id": fwd_id, "completed": {"success": True}})
    for event in events:
        reader.feed(json.dumps(event), 1.0)
    labels = {"module_custom": "//:module_custom", "libmha_fwd": "//:libmha_fwd"}
    custom = results_of(reader, labels)["module_custom"]
    assert describe_failure(custom, reader) == _NO_TORCH
    unfetched = reader_of("")
    text = f"com.google.lib.Function$AccessException: \n{_NO_TORCH}"
    unfetched.feed(json.dumps({"id": _CAUSES[0], "aborted": {"description": text}}), 1.0)
    assert describe_failure(custom, unfetched) == _NO_TORCH
    # For a package that is not loaded, only Bazel's output has the reason; events have a label.
    assert "ManifestError" in describe_failure(custom, reader_of(_BAZEL))
