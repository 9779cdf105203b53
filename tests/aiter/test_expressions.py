"""Evaluation of AITER's configuration expressions, and rejection of all other Python code."""

from __future__ import annotations

import contextlib
import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from qola.aiter.core_file import core_defines
from qola.aiter.expressions import Names, RefusedError, evaluate, parse

NAMES = Names(
    values={
        "CK_DIR": "@AITER@/ck",
        "AITER_CSRC_DIR": "@AITER@/csrc",
        "AITER_CONFIGS.AITER_CONFIG_FMOE_FILE": "@AITER@/fmoe.csv",
    },
    calls={"get_asm_dir": "@AITER@/hsa/@ARCH@", "get_gfx": "@ARCH@"},
    archs=("gfx942", "gfx1250"),
    torch=frozenset({"float8_e4m3fnuz"}),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("''", ""),
        ("  ''  ", ""),
        ("None", None),
        ("False", False),
        ("'-DX=1'", "-DX=1"),
        ("f'{CK_DIR}/example'", "@AITER@/ck/example"),
        ("f'{CK_DIR}/generate.py --output_dir {{}}'", "@AITER@/ck/generate.py --output_dir {}"),
        ("f'{get_asm_dir()}/codegen.py'", "@AITER@/hsa/@ARCH@/codegen.py"),
        ("f'{AITER_CONFIGS.AITER_CONFIG_FMOE_FILE}'", "@AITER@/fmoe.csv"),
        ("f'-DA={os.environ.get(\"UNSET\", 2)}'", "-DA=2"),
        ("os.environ.get('UNSET')", None),
        ("os.getenv('UNSET', 'x')", "x"),
        ("'new' if int('7.2'.split('.')[0]) >= 7 else 'old'", "new"),
        ("'a' if 'x' == 'x' else unknown_name", "a"),
        ("os.environ.get('GPU_ARCHS', '')", "gfx942;gfx1250"),
        ("get_gfx() == 'gfx950'", False),
        ("get_gfx() == 'gfx950' or 'gfx950' in os.environ.get('GPU_ARCHS', '')", False),
        # The value of the first operand differs per arch, but does not affect the result.
        ("get_gfx() == 'gfx1250' or 'gfx1250' in os.environ.get('GPU_ARCHS', '')", True),
        ("get_gfx() == 'gfx1250' and 'x' == 'y'", False),
        ("'gfx950' not in os.getenv('GPU_ARCHS')", True),
        ("hasattr(torch, 'float8_e4m3fnuz')", True),
    ],
)
def test_supported_expressions(text: str, value: object) -> None:
    """Prevents: qola evaluates an expression of AITER's configuration differently than Python."""
    assert evaluate(text, NAMES) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__import__('os').system('true')", "__import__('os').system('true')"),
        ("os.system('true')", "os.system('true')"),
        ("open('/etc/passwd')", "open('/etc/passwd')"),
        ("().__class__", "().__class__"),
        ("CK_DIR.__class__", "CK_DIR.__class__"),
        ("[x for x in 'ab']", "ListComp"),
        ("lambda: 1", "Lambda"),
        ("(x := 1)", "NamedExpr"),
        ("1 + 1", "BinOp"),
        ("-DFOO", "UnaryOp"),
        ("not True", "UnaryOp"),
        ("1.5", "float"),
        ("b'x'", "bytes"),
        ("UNKNOWN", "`UNKNOWN`"),
        ("get_gfx() == 'gfx1250'", "has no single answer for gfx942, gfx1250"),
        ("get_gfx() == 'gfx1250' or False", "has no single answer for gfx942, gfx1250"),
        ("'x' or True", "`'x'` is not a truth value"),
        ("os.environ['UNSET']", "UNSET has no value in a plan"),
        ("os.environ.get(key='SET')", "keyword"),
        ("os.environ.get(*'ab')", "starred"),
        ("os.environ.get(1)", "os.environ.get(1)"),
        ("os.environ", "`os.environ`"),
        ("f'{CK_DIR!r}'", "conversion"),
        ("f'{CK_DIR:>9}'", "conversion or format"),
        ("int('x')", "not a whole number"),
        ("'a.b'.split('')", "empty separator"),
        ("'a.b'.split('.')[5]", "only 2 parts"),
        ("'abc'[0]", "the subscript"),
        ("1 < 2 < 3", "the comparison"),
        ("1 in (1, 2)", "Tuple"),
        ("1 in 2", "compares int with int"),
        ("1 < '2'", "compares int with str"),
        ("hasattr(os, 'system')", "hasattr(os, 'system')"),
        ("get_gfx(1)", "get_gfx(1)"),
        ("hasattr(torch, 'x')", "no PyTorch is given"),
        ("torch.version.hip", "no PyTorch is given"),
        ("a b", "not a Python expression"),
        ("import os", "not a Python expression"),
    ],
)
def test_unsupported_expressions_are_rejected(text: str, expected: str) -> None:
    """Prevents: qola executes code of a source tree, or rejects it without naming the construct."""
    with pytest.raises(RefusedError) as error:
        evaluate(text, NAMES)
    assert expected in error.value.reason


def test_process_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: a plan depends on environment variables of the shell."""
    monkeypatch.setenv("QOLA_LEAK", "leaked")
    assert evaluate("os.environ.get('QOLA_LEAK', 'clean')", Names()) == "clean"


def test_threads_parse_concurrently() -> None:
    """Prevents: "AST constructor recursion depth mismatch" when two threads plan modules."""

    def pause(phase: str, info: object) -> None:
        time.sleep(0.0001)

    text = "if f(a[1], b.c):\n  x = {k: [v, (w, 1)] for k, v in y.items() if not (v or w)}\n" * 200
    # The sleep in a garbage collection during a parse lets another thread run, as finalizers do.
    gc.callbacks.append(pause)
    try:
        with ThreadPoolExecutor(max_workers=4) as pool:
            trees = pool.map(lambda _: parse(text), range(8))
            assert {len(tree.body) for tree in trees} == {200}
    finally:
        gc.callbacks.remove(pause)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 250 + "1" + ")" * 250,
        "-" * 1900 + "1",
        "not " * 400 + "1",
        "CK_DIR" + ".a" * 900,
        "f()" + "()" * 900,
        "1 if " * 300 + "1" + " else 1" * 300,
        "x" + ".split('a')[0]" * 60,
        "lambda: " * 200 + "1",
        "[" * 150 + "]" * 150,
        "'" + "x" * 2000 + "'",
        "0x" + "f" * 5000,
        "f'{0x" + "f" * 1900 + "}'" + " " * 5000,
        "+" * 100_000 + "1",
        "'\x00'",
    ],
    ids=range(14),
)
def test_long_and_deep_expressions_are_rejected(text: str) -> None:
    """Prevents: an expression of a tree overflows the stack or takes seconds to evaluate."""
    start = time.process_time()
    with pytest.raises(RefusedError) as error:
        evaluate(text, NAMES)
    assert time.process_time() - start < 1
    assert len(error.value.reason) < 2500


@pytest.mark.parametrize("nested", ["-" * 60_000 + "1", "a" + ".a" * 60_000, "(" * 900 + ")" * 900])
def test_deeply_nested_core_file(nested: str) -> None:
    """Prevents: a deeply nested core.py aborts a plan with RecursionError or MemoryError."""
    with contextlib.suppress(SyntaxError):
        parse(f"x = {nested}\n")
    assert (
        core_defines(f"def f():\n  e = {nested}\n  if {nested}:\n    c.append(f'-DE={{e}}')\n")
        == ()
    )
