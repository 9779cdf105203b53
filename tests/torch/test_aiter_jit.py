"""Modules in mode aiter, imported by the Python code of AITER's wheel without a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from email.parser import Parser
from pathlib import Path

import pytest

from gfxemu.fake_hip import RUNTIME
from tests.support import running
from tests.torch import aiter_site
from tests.torch.torch_programs import FAKE, PYTHON

BUNDLE = Path(os.environ["QOLA_TEST_BUNDLE"], "manifest.json").resolve().parent
MODULES = Path(os.environ["QOLA_TEST_MODULES"], "manifest.json").resolve().parent / "aiter_jit"
TREE = Path(os.environ["QOLA_TEST_AITER_TREE"]).resolve()
WHEEL = Path(os.environ["QOLA_TEST_WHEEL"]).resolve()
REMOVE_JIT = Path(__file__).parents[2] / "examples/serving/remove-jit"
COMPILERS = ("c++", "cc", "clang", "clang++", "g++", "gcc", "hipcc", "make", "ninja")
START = "import os, site, sys, torch\nsite.addsitedir(sys.argv[1])\n"
ABSENT = Path(__file__).with_name("absent.py").read_text("utf-8")
REFUSE = """\
import aiter
from aiter.jit import core
def refuse(name, *args, **kwargs):
    raise SystemExit(f"AITER compiles {name}")
core.build_module = refuse
"""
IMPORT = """\
unary = core.get_module("module_aiter_unary")
variant = core.get_module("module_aiter_unary_variant")
assert variant.sigmoid.__doc__ == unary.sigmoid.__doc__
assert aiter.ActivationType.Silu.__module__ == "module_aiter_enum", aiter.ActivationType.Silu
try:
    aiter.sigmoid(torch.ones(4))
except IndexError as error:
    print(error)
print(unary.__file__, flush=True)
# PyTorch 2.13 fails to remove AITER's operators at exit.
os._exit(0)
"""
#: Calls AITER's `compile` for a function of csrc/cpp_itfs.
FUNCTION = """\
import aiter
from csrc.cpp_itfs import utils
from csrc.cpp_itfs.sampling import top_k_renorm_probs
def refuse(*args, **kwargs):
    raise SystemExit("AITER compiles a function")
utils.compile_lib = refuse
before = sorted(os.listdir(utils.BUILD_DIR))
function = top_k_renorm_probs.compile(128256)
try:
    top_k_renorm_probs.compile(32000)
except SystemExit as error:
    print(error)
assert sorted(os.listdir(utils.BUILD_DIR)) == before
library = f"{utils.BUILD_DIR}/{function.__name__}/lib.so"
assert library in open("/proc/self/maps").read()
print(library, flush=True)
os._exit(0)
"""
SAMPLING = "top_k_renorm_probs_ce04aa28ad9cb13a39c0f99979bd957f"
EACH = """\
for name in sys.argv[2:]:
    print(core.get_module(name).__file__)
sys.stdout.flush()
os._exit(0)
"""
#: Ranks of a server: forked processes, after PyTorch's import.
RANKS = """\
children = []
for _ in range(8):
    child = os.fork()
    if not child:
        break
    children.append(child)
else:
    sys.exit(max(os.waitpid(child, 0)[1] for child in children))
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """A directory with AITER in site/, and in bin/ compilers that no test may run."""
    aiter_site.install(tmp_path, TREE)
    (tmp_path / "bin" / RUNTIME).symlink_to(FAKE)
    for name in COMPILERS:
        aiter_site.write_tool(tmp_path, name, f"echo {name} >> {tmp_path}/compiled; exit 1")
    yield tmp_path
    assert not (tmp_path / "compiled").exists()


def command(machine: Path, code: str) -> list[str]:
    return [PYTHON, "-c", START + code, str(machine / "site")]


def environment(machine: Path, changes: Mapping[str, str]) -> dict[str, str]:
    defaults = {"GPU_ARCHS": "gfx942", "LD_LIBRARY_PATH": f"{machine}/bin"}
    return {**aiter_site.variables(machine), **defaults, **changes}


def run(machine: Path, code: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the Python whose PyTorch the modules require."""
    return running.run(command(machine, code), env=environment(machine, changes))


def lines_of(machine: Path, code: str, **changes: str) -> list[str]:
    """Run a program that must succeed, and return the lines that it prints."""
    result = run(machine, code, **changes)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def install(machine: Path) -> Path:
    """Unpack the wheel into site/ as pip does; return its package."""
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(machine / "site")
    return machine / "site/qola_aiter"


def modification_times(directory: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*")}


def test_aiter_imports_the_directory_without_a_compiler(machine: Path) -> None:
    """Prevents: AITER does not find the modules of a directory, or cannot use them."""
    directory = BUNDLE / "aiter_jit"
    before = modification_times(BUNDLE)
    error, module_path = lines_of(machine, ABSENT + REFUSE + IMPORT, AITER_JIT_DIR=str(directory))
    assert error.startswith("Dimension out of range"), "of module_aiter_unary's own C++"
    assert Path(module_path) == directory / "module_aiter_unary.so"
    assert modification_times(BUNDLE) == before


def test_aiter_finds_functions_of_its_second_jit(machine: Path) -> None:
    """Prevents: paged attention and sampling are compiled while a server handles requests."""
    directory = BUNDLE / "aiter_jit"
    before = modification_times(BUNDLE)
    variables = {"AITER_JIT_DIR": str(directory), "AITER_ROOT_DIR": str(directory)}
    assert lines_of(machine, ABSENT + FUNCTION, **variables) == [
        "AITER compiles a function",
        f"{directory}/build/{SAMPLING}/lib.so",
    ]
    assert modification_times(BUNDLE) == before
    # The wheel sets both variables.
    package = install(machine)
    library = f"{package}/aiter_jit/build/{SAMPLING}/lib.so"
    assert lines_of(machine, ABSENT + FUNCTION)[-1] == library
    assert not (machine / ".aiter").exists()


def test_aiter_imports_every_module(machine: Path) -> None:
    """Prevents: a module links, but AITER cannot import it."""
    files = sorted(MODULES.glob("*.so"))
    each = [*command(machine, ABSENT + REFUSE + EACH), *(file.stem for file in files)]
    env = environment(machine, {"AITER_JIT_DIR": str(MODULES)})
    assert [Path(line) for line in running.output_of(each, env=env).splitlines()] == files
    assert len(files) >= 20


def test_ranks_share_a_read_only_file_system(machine: Path) -> None:
    """Prevents: ranks wait for each other, or fail if they cannot write files."""
    directory = shutil.copytree(BUNDLE / "aiter_jit", machine / "ro")
    script = (
        'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && ! mkdir "$0/x" && exec "$@"'
    )
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", script]
    result = running.run(
        [*unshare, str(directory), *command(machine, ABSENT + RANKS + REFUSE + IMPORT)],
        env=environment(machine, {"AITER_JIT_DIR": str(directory)}),
    )
    if "unshare" in result.stderr or "mount:" in result.stderr:
        pytest.skip(f"no file systems can be mounted here: {result.stderr}")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines().count(str(directory / "module_aiter_unary.so")) == 8


def test_wheel_needs_no_variable(machine: Path) -> None:
    """Prevents: AITER ignores an installed wheel."""
    package = install(machine)
    library = str(package / "aiter_jit/module_aiter_unary.so")
    assert lines_of(machine, ABSENT + REFUSE + IMPORT)[-1] == library
    # AITER_JIT_DIR of the user has precedence.
    user_directory = machine / "own"
    code = "import importlib.util as u\nu.find_spec('aiter')\nprint(os.environ['AITER_JIT_DIR'])"
    assert run(machine, code, AITER_JIT_DIR=str(user_directory)).stdout == f"{user_directory}\n"


def test_an_image_without_the_files_of_the_jit(machine: Path) -> None:
    """Prevents: in an image of examples/serving, AITER still reads hsa/, CK or the compiler."""
    package, meta = install(machine), machine / "site/aiter_meta"
    meta.unlink()
    meta.mkdir()
    for path in (TREE / "aiter_meta").iterdir():
        (meta / path.name).symlink_to(path)
    # The tools of ROCm; remove-jit keeps hipconfig.
    (machine / "rocm").mkdir()
    (machine / "bin").rename(machine / "rocm/bin")
    (machine / "bin").symlink_to("rocm/bin")
    command = [REMOVE_JIT, machine / "rocm", machine / "site/aiter/__init__.py"]
    subprocess.run(command, check=True)
    assert not any((machine / "bin" / name).exists() for name in ("hipcc", "hipcc.bin"))
    assert sorted(path.name for path in meta.iterdir()) == ["csrc", "gradlib"]
    library = str(package / "aiter_jit/module_aiter_unary.so")
    assert lines_of(machine, ABSENT + REFUSE + IMPORT)[-1] == library


def test_wheel_requires_its_python_and_pytorch(machine: Path) -> None:
    """Prevents: pip installs a wheel for a Python or PyTorch that cannot import it."""
    package = install(machine)
    code = "print(*sys.version_info[:2], torch.__version__)"
    major, minor, torch = run(machine, code).stdout.split()
    tag = f"cp{major}{minor}"
    assert WHEEL.name == f"qola_aiter-0.1.0-{tag}-{tag}-linux_x86_64.whl"
    text = (machine / "site/qola_aiter-0.1.0.dist-info/METADATA").read_text("utf-8")
    metadata = Parser().parsestr(text)
    assert metadata["Requires-Dist"] == f"torch=={torch}"
    assert metadata["Requires-Python"] == f"=={major}.{minor}.*"
    assert (package / "licenses/composable_kernel/LICENSE").is_file()
    assert (machine / "site/qola_aiter.pth").read_text("utf-8").startswith("import ")


def test_modules_are_listed(machine: Path) -> None:
    """Prevents: nothing shows the modules in an image."""
    package = install(machine)
    command = [sys.executable, "-m", "qola_aiter", "modules"]
    path = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONSAFEPATH": ""}
    listing = subprocess.check_output(command, env=path, text=True).splitlines()
    built = json.loads((package / "manifest.json").read_text("utf-8"))["aiter_jit"]
    assert listing[0] == (
        f"AITER 0.1.7.post2.dev18, PyTorch {built['torch']}, Python {built['python']}, "
        "gfx942, gfx950"
    )
    names = [line.partition(":")[0] for line in listing[1:]]
    assert names == [
        "module_aiter_enum",
        SAMPLING,
        "  top_k_renorm_probs(d=128256)",
        "module_aiter_unary",
        "  module_aiter_unary_variant",
    ]
    assert (package / "aiter_jit/module_aiter_unary_variant.so").stat().st_size < 20_000
    # The bundle's directory contains this program, too.
    bundle_listing = running.output_of([sys.executable, BUNDLE / "aiter_modules.py"])
    # Libraries of a bundle have other digests, since their RUNPATH is hidden.
    ours, theirs = (
        [line.rpartition(", ")[0] or line for line in lines]
        for lines in (listing, bundle_listing.splitlines())
    )
    assert ours == theirs


def edit_record(package: Path, **changes: object) -> None:
    """Change the environment for which the modules were built."""
    record = json.loads((package / "manifest.json").read_text("utf-8"))
    for key, value in changes.items():
        (record["aiter_jit"] if key in record["aiter_jit"] else record)[key] = value
    (package / "manifest.json").write_text(json.dumps(record), "utf-8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"torch": "1.0+other"}, ", built for 1.0+other"),
        ({"python": "3.99"}, ", built for 3.99"),
        ({"files": {"aiter/ops/mha.py": "0" * 64}}, "(aiter/ops/mha.py), built for AITER 0.1.7.p"),
    ],
    ids=("torch", "python", "aiter"),
)
def test_modules_for_another_environment_are_rejected(
    machine: Path, changes: dict[str, object], message: str
) -> None:
    """Prevents: modules of another AITER, PyTorch or Python crash a server."""
    edit_record(install(machine), **changes)
    result = run(machine, "import aiter")
    assert result.returncode == 1
    assert f"ImportError: the modules in {machine}/site/qola_aiter are for something else:" in (
        result.stderr
    )
    assert message in result.stderr
    checked = run(machine, "sys.argv[1:] = ['check']\nimport runpy\nrunpy.run_module('qola_aiter')")
    assert checked.returncode == 1
    assert message in checked.stderr, checked.stderr


def test_modules_for_another_gpu_are_rejected(machine: Path) -> None:
    """Prevents: modules for another GPU fail at the first launch."""
    package = install(machine)
    for node, version in enumerate((0, 90010)):
        (machine / f"nodes/{node}").mkdir(parents=True)
        properties = f"cpu_cores_count 0\ngfx_target_version {version}\n"
        (machine / f"nodes/{node}/properties").write_text(properties, "utf-8")
    code = (
        "from pathlib import Path\nimport qola_aiter.aiter_modules as m\n"
        f"print(m.differences(Path({str(machine / 'nodes')!r})))"
    )
    assert run(machine, code).stdout == "['gfx90a, built for gfx942, gfx950']\n"
    edit_record(package, archs=["gfx90a"])
    assert run(machine, code).stdout == "[]\n"
