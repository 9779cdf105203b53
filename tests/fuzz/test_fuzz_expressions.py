"""Hostile AITER trees: the expressions of optCompilerConfig.json, its entries and core.py."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from qola.aiter.core_file import core_defines
from qola.aiter.expressions import Names, RefusedError, evaluate
from qola.aiter.module_config import CONFIG_KEYS
from qola.aiter.tree import CONFIG_FILE, CORE_FILE, read_tree
from qola_base.errors import unseen
from tests.fuzz.fuzzing import HOSTILE, fuzz, mutate

NAMES = Names(
    values={"CK_DIR": "@AITER@/ck", "AITER_CSRC_DIR": "@AITER@/csrc"},
    calls={"get_gfx": "@ARCH@"},
)
VALID = (
    "f'{CK_DIR}/example/ck_tile/01_fmha/generate.py -d fwd --receipt 600 --output_dir {{}}'",
    "f'-DA={os.environ.get(\"SET\", 2)}'",
    "'new' if int(torch.version.hip.split('.')[0]) >= 7 else 'old'",
    "'-DF' if hasattr(torch, 'float8') else ''",
    "f'{get_gfx()}'",
    "os.getenv('X', 'y')",
    "os.environ['SET']",
    "False",
)
LEAVES = (
    *("1", "'a.b'", "CK_DIR", "os", "torch", "None", "0x" + "f" * 1500, "'\\ud800'", "b''", "..."),
)
FORMS = (
    *("({0})", "{0}.split({1})", "{0}[{1}]", "{0} < {1}", "{0} if {1} else {0}", "int({0})"),
    *("f'{{{0}}}'", "f'{{{0}!r:>{{{1}}}}}'", "os.environ.get({0}, {1})", "hasattr({0}, {1})"),
    *("-{0}", "not {0}", "{0} + {1}", "[{0}, *{1}]", "{0}.a.b", "lambda x: {0}", "{0}(x={1})"),
    *("(y := {0})", "{{{0}: {1}}}", "[x for x in {0}]", "{0} * {1}", "{0}\n.a", "await {0}"),
)


def expression(rng: random.Random) -> str:
    """Return an expression: of AITER, built from forms, very deep, or mutated."""
    kind = rng.random()
    if kind < 0.3:
        return mutate(rng, rng.choice(VALID))
    if kind < 0.4:
        form = rng.choice(FORMS)
        text = "1"
        while len(text) < rng.choice((200, 1500, 4000)) and len(form) > 3:
            text = form.format(text[:3000], "2")
        return text
    text = rng.choice(LEAVES)
    for _ in range(rng.choice((1, 2, 3, 12))):
        text = rng.choice(FORMS).format(f"({text})", rng.choice(LEAVES))
    return text if kind < 0.9 else mutate(rng, text)


def check_value(text: str) -> None:
    """Evaluate an expression; the value must have a type that an entry may contain."""
    value = evaluate(text, NAMES)
    assert value is None or type(value) in (str, int, bool, list)
    str(value)


def test_expressions() -> None:
    """Prevents: an expression runs code, overflows the stack or takes forever."""
    fuzz(expression, check_value, (RefusedError,))


def entry(rng: random.Random) -> Any:
    """Return an entry of the configuration, with valid and invalid values."""

    def value(depth: int = 0) -> Any:
        match rng.randint(0, 9):
            case 0:
                return rng.choice((None, True, 7, 1.5, 10**4000, {}, []))
            case 1 if depth < 3:
                return {rng.choice(HOSTILE): value(depth + 1)}
            case 2 | 3 if depth < 3:
                return [value(depth + 1) for _ in range(rng.randint(0, 3))]
            case 4:
                return repr(rng.choice(HOSTILE))
            case 5:
                return rng.choice(("'/etc'", "f'{CK_DIR}/../..'", "'csrc/../../x'", "'csrc'"))
            case _:
                return expression(rng)

    keys = rng.sample([*CONFIG_KEYS, rng.choice(HOSTILE)], rng.randint(0, 6))
    return {key: value() for key in keys}


CORE = """\
CK_DIR = os.environ.get("CK_DIR", f"{AITER_META_DIR}/3rdparty/composable_kernel")
AITER_CONFIG_X_FILE = get_config_file("AITER_CONFIG_X", "d", "tuned_x")
def build_module(flags_extra_cc):
    enable_ck = int(os.environ.get("ENABLE_CK", "1"))
    if not any("ENABLE_CK" in f for f in flags_extra_cc):
        flags_cc.append(f"-DENABLE_CK={enable_ck}")
"""


def test_trees(tmp_path: Path) -> None:
    """Prevents: files of a tree cause a traceback, or paths outside of the tree."""
    for directory in ("csrc/include", "aiter/jit", "aiter/configs/model_configs"):
        (tmp_path / directory).mkdir(parents=True)

    def tree(rng: random.Random) -> tuple[bytes, bytes]:
        entries = {"libmha_fwd": {"x": "/cpp_itfs/mha_fwd.cu", **entry(rng)}, "m": entry(rng)}
        config = json.dumps(entries)
        if rng.random() < 0.2:
            config = mutate(rng, config)
        core = mutate(rng, CORE) if rng.random() < 0.5 else CORE
        return config.encode("utf-8", "replace"), core.encode("utf-8", "surrogatepass")

    def take_tree(files: tuple[bytes, bytes]) -> None:
        config, core = files
        (tmp_path / CONFIG_FILE).write_bytes(config)
        (tmp_path / CORE_FILE).write_bytes(core)
        core_defines(core.decode("utf-8", "replace"))
        parsed = read_tree(tmp_path)
        for name in parsed.module_names():
            module = parsed.module(name)
            paths = (*module.srcs, *module.include_dirs)
            assert not [p for p in paths if p.startswith("/") or ".." in p.split("/")]
            strings = (*paths, *module.flags_cc, *module.flags_hip, *module.ldflags)
            assert not any(map(unseen, strings))

    fuzz(tree, take_tree)
