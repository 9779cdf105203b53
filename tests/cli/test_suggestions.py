"""Suggestions for misspelt options, files, keys, values and commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from qola.cli.command_line import main
from qola.common.suggestions import nearest, similar_file
from qola.query.kernels import make_item, select
from qola_lab.problems.fields import parse_words
from qola_lab.problems.problem import ProblemError

MANIFEST = """\
[build]
architectures = ["gfx950"]
mode = "cpp_itfs"
[[modules]]
name = "libmha_fwd"
receipt = 700
"""


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("--estimat", "--estimate"),
        ("CPP", "cpp_itfs"),
        ("cpp", "cpp_itfs"),
        ("pybimd", "pybind"),
        ("py", "pybind"),
        ("p", ""),
        ("zzz", ""),
        ("", ""),
    ],
)
def test_the_nearest_choice(word: str, expected: str) -> None:
    """Prevents: no suggestion for the beginning of a choice, or one for an unlike word."""
    assert nearest(word, ["--estimate", "cpp_itfs", "pybind", "plan"]) == expected


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("plan mine.toml --estimat", "--estimate"),
        ("build mine.toml --outputdir=x", "--output-dir"),
        ("--verison", "--version"),
        ("--cmakedir", "--cmake-dir"),
        ("plan mine.toml --mode cpp", "cpp_itfs"),
        ("checkout --aiter-comit=abc", "--aiter-commit"),
        ("plan mien.toml", "mine.toml"),
        ("plan below/mien.toml", "below/mine.toml"),
        ("plan wrong_value.toml", '"cpp_itfs"'),
        ("plan wrong_key.toml", "architectures"),
        ("init x.toml --model confg.json", "config.json"),
        ("inspect libx.s0.so", "libx.so"),
    ],
)
def test_commands_suggest(
    words: str, meant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: a typing error whose message does not name the word that was meant."""
    (tmp_path / "below").mkdir()
    files = {
        "mine.toml": MANIFEST,
        "below/mine.toml": MANIFEST,
        "wrong_value.toml": MANIFEST.replace("cpp_itfs", "cpp"),
        "wrong_key.toml": MANIFEST.replace("architectures", "architecture"),
        "config.json": "{}",
        "libx.so": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    environ = {"QOLA_CACHE_HOME": str(tmp_path / "cache")}
    assert main(words.split(), environ, directory=tmp_path) in (1, 2)
    found = capsys.readouterr().err
    suggested = tmp_path / meant if "." in meant else meant
    assert f"did you mean {suggested}?" in found


def test_files_without_a_similar_one(tmp_path: Path) -> None:
    """Prevents: a traceback for a missing directory, or a suggestion of the missing file."""
    assert similar_file(tmp_path / "none/x.toml") == ""
    assert similar_file(tmp_path / "x.toml") == ""
    (tmp_path / "x.json").touch()
    assert similar_file(tmp_path / "x.toml") == ""
    assert similar_file(tmp_path / "y.json") == similar_file(tmp_path / "y") == ""


@pytest.mark.parametrize("name", ["mask", "has_mask", "mask_tpye"])
def test_problems_know_the_names_of_manifests(name: str) -> None:
    """Prevents: a mask has three names, and each command knows one."""
    with pytest.raises(ProblemError, match="did you mean mask_type=no") as caught:
        parse_words(["dtype=bf16", "hdim=64", "seqlen_q=8", f"{name}=no"], "fwd")
    assert len(caught.value.findings) == 1


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("has_mask=yes", "mask_type=causal"),
        ("mask=true", "mask_type=causal"),
        ("has_alibi=yes", "bias_type=alibi"),
        ("has_lse=yes", "return_lse=yes"),
    ],
)
def test_suggested_words_are_valid(word: str, meant: str) -> None:
    """Prevents: following a suggestion leads to the next error."""
    words = ["dtype=bf16", "hdim=64", "seqlen_q=8"]
    with pytest.raises(ProblemError, match=f"did you mean {meant}"):
        parse_words([*words, word], "fwd")
    parse_words([*words, meant], "fwd")


def test_queries_know_the_names_of_manifests() -> None:
    """Prevents: `has_alibi = true` of a manifest is an unknown field of `qola list`."""
    items = [
        make_item(bias, "libmha_fwd", "fwd", "fwd", ["gfx950"], [("bias", bias)])
        for bias in ("no", "bias", "alibi")
    ]
    assert select(items, ["has_alibi=true"]) == [2]
    assert select(items, ["has_alibi=no"]) == [0, 1]
    assert select(items, ["has_bias=no", "has_alibi=no"]) == [0]
    assert select(items, ["bias_type=bias,alibi"]) == [1, 2]


def test_no_arch_is_valid_by_its_name_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: an error lists archs as valid for which no AITER has a kernel."""
    for text in ("gfx94", "gfx10300"):
        (tmp_path / "x.toml").write_text(MANIFEST.replace("gfx950", text))
        assert main(["plan", "x.toml"], {}, directory=tmp_path) == 2
        found = capsys.readouterr().err
        assert "gfx942, gfx950, any other that the tree has kernels for or native" in found
        assert "gfx1031" not in found


def test_a_report_of_what_was_just_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prevents: `qola report mine.toml` does not know where `qola build mine.toml` wrote."""
    (tmp_path / "mine.toml").write_text(f'[qola]\nnamespace = "it"\n{MANIFEST}')
    words = ["report", "mine.toml", "-o", "page.html"]
    assert main(words, {}, directory=tmp_path) == 1
    assert "error: out/it\n" in (found := capsys.readouterr().err)
    assert "qola build mine.toml" in found
    (tmp_path / "out/it/lib").mkdir(parents=True)
    assert main(words, {}, directory=tmp_path) == 1
    # It looks for libraries there.
    assert f"error: {tmp_path / 'out/it'}\n" in capsys.readouterr().err
    assert main(words[:1] + words[2:], {}, directory=tmp_path) == 2
    assert "BUILT or MANIFEST" in capsys.readouterr().err
