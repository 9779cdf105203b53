"""Split libraries: their launches with packs of device code, and their errors without packs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gfxemu.fake_hip import read_log
from qola.report.data import ReportError
from qola.report.library import read_library
from qola_lab.tests.verify.run_consumer import BUNDLE
from qola_lab.tests.verify.table import GFX942, GFX950, Device, Row, line_of
from tests.library.run_calls import (
    CALL_ROWS,
    HEADER,
    NAMESPACE,
    call,
    calls,
    python,
    run_table,
)

SPLIT = Path(os.environ["QOLA_TEST_SPLIT"]).resolve()
OK, UNAVAILABLE = 0, -4
CALLER = "caller = Caller(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))\n"


def rows_with_kernels(device: Device) -> list[Row]:
    """Return the rows of a device with kernels, starting with one row of each direction."""
    rows = [
        row for row in CALL_ROWS if row.device == device and calls(device)[row][0]["status"] == OK
    ]
    first = {row.problem.direction: row for row in reversed(rows)}
    return [*first.values(), *(row for row in rows if row not in first.values())]


def packs(directory: Path, arch: str = "*") -> list[Path]:
    """Return the packs of device code in a bundle."""
    return sorted(directory.glob(f"lib/*-{arch}.qpack"))


def copy(directory: Path, *archs: str) -> Path:
    """Copy the libraries of the split bundle, with the packs of some archs."""
    (directory / "lib").mkdir(parents=True)
    selected = [pack for arch in archs for pack in packs(SPLIT, arch)]
    for file in (*SPLIT.glob("lib/*.so"), *selected):
        shutil.copyfile(file, directory / "lib" / file.name)
    return directory


def run(bundle: Path, device: Device, log: Path, **env: str) -> tuple[list[dict[str, Any]], str]:
    """Call the first problem of each direction twice; return the answers and standard error."""
    first = rows_with_kernels(device)[:2]
    rows = sorted(first, key=lambda row: row.problem.direction, reverse=True) * 2
    _, answers, error = run_table(rows, device, bundle, log, **env)
    return answers, error


DEVICES: list[Device] = sorted({row.device for row in CALL_ROWS}, key=lambda device: device.name)


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_launches_equal_those_of_the_full_library(device: Device) -> None:
    """Prevents: device code or an answer differs from the full library's."""
    rows = [row for row in CALL_ROWS if row.device == device]
    for row, (answer, launches) in zip(rows, call(rows, device, SPLIT)[1], strict=True):
        full, full_launches = calls(device)[row]
        assert answer == full, row.name
        assert [(x.kernel, x.grid, x.block, len(x.kernarg), x.lds_dynamic) for x in launches] == [
            (x.kernel, x.grid, x.block, len(x.kernarg), x.lds_dynamic) for x in full_launches
        ]
        digests = [x.code_object_sha256 for x in launches]
        assert digests == [x.code_object_sha256 for x in full_launches]


def test_no_device_code_in_libraries() -> None:
    """Prevents: a host part contains device code."""
    for library in SPLIT.glob("lib/*.so"):
        data = library.read_bytes()
        assert b"CCOB" not in data
        assert data.count(b"\x7fELF") == 1
        assert b"amdhsa--gfx942\namdhsa--gfx950\n" in data
        library_packs = [pack for pack in packs(SPLIT) if pack.name.startswith(f"{library.stem}-")]
        assert [pack.name for pack in library_packs] == [
            f"{library.stem}-{arch}.qpack" for arch in ("gfx942", "gfx950")
        ]
        assert len(data) < (BUNDLE / "lib" / library.name).stat().st_size + 300_000


def test_a_report_of_a_host_part() -> None:
    """Prevents: a report without kernels, or an error that does not name the packs."""
    for library in SPLIT.glob("lib/*.so"):
        with pytest.raises(ReportError, match="host part of a split library, whose device code is"):
            read_library(library)


def test_a_missing_pack(tmp_path: Path) -> None:
    """Prevents: a crash, a wrong status, or an error that does not name the missing file."""
    bundle = copy(tmp_path / "alone", "gfx942")
    answers, error = run(bundle, GFX950, tmp_path / "log")
    assert all(answer["status"] == UNAVAILABLE for answer in answers)
    if NAMESPACE == "ci":
        # Composable Kernel's dispatch needs no device code; AITER loads assembly kernels for it.
        assert all(answer["find"] == OK for answer in answers)
    assert not (tmp_path / "log").exists()
    for direction in ("fwd", "bwd"):
        library = f"{NAMESPACE}_libmha_{direction}"
        pack = f"{library}-gfx950.qpack"
        # The message appears once, although each entry point is called twice.
        (message,) = [line for line in error.splitlines() if f"{library}.so has" in line]
        assert message == (
            f"qola: {library}.so has no device code for gfx950: {pack} is missing; "
            f"searched: {bundle}/lib/{pack}; fix: copy {pack} of the same build to {bundle}/lib, "
            "or name it or its directory in QOLA_PACKS"
        )
        if NAMESPACE == "ci":
            # The C functions return the message for each call.
            errors = [answer["error"] for answer in answers]
            assert errors.count(message.removeprefix("qola: ")) == 2
    # The packs of the other arch are there.
    answers, error = run(bundle, GFX942, tmp_path / "log")
    assert all(answer["status"] == OK for answer in answers)
    assert error == ""


@pytest.mark.parametrize("failing", ["hipModuleLoadData", "hipModuleGetFunction"])
def test_a_failed_load_names_the_kernel_in_one_line(tmp_path: Path, failing: str) -> None:
    """Prevents: an error has thousands of characters of a mangled name, or no kernel name."""
    bundle = copy(tmp_path / "bundle", "gfx950")
    answers, error = run(bundle, GFX950, tmp_path / "log", FAKE_HIP_FAIL=f"{failing}=200")
    lines = error.splitlines()
    assert all(answer["status"] != OK for answer in answers)
    assert max(map(len, lines)) < 300
    if NAMESPACE == "ci":
        # AITER's host code loads assembly kernels.
        assert all("find _Z" in line or "load the code of _Z" in line for line in lines)


def test_packs_are_found_by_the_environment(tmp_path: Path) -> None:
    """Prevents: QOLA_PACKS is ignored, or one of its directories or files is not searched."""
    bundle, other = copy(tmp_path / "alone"), copy(tmp_path / "other", "gfx950")
    for value in (f"{other}/lib", ":".join(map(str, packs(other)))):
        answers, error = run(bundle, GFX950, tmp_path / "log", QOLA_PACKS=value)
        assert all(answer["status"] == OK for answer in answers), error
    answers, error = run(bundle, GFX942, tmp_path / "log", QOLA_PACKS=f"{other}/lib")
    assert all(answer["status"] == UNAVAILABLE for answer in answers)
    assert f"searched: {other}/lib/{NAMESPACE}_libmha_fwd-gfx942.qpack, {bundle}/lib/" in error


def test_packs_are_found_through_a_link(tmp_path: Path) -> None:
    """Prevents: a library loaded through a link does not find the packs next to its file."""
    target, bundle = copy(tmp_path / "target", "gfx950"), tmp_path / "links"
    (bundle / "lib").mkdir(parents=True)
    for library in target.glob("lib/*.so"):
        (bundle / "lib" / library.name).symlink_to(library)
    answers, error = run(bundle, GFX950, tmp_path / "log")
    assert all(answer["status"] == OK for answer in answers), error


def test_packs_of_a_library_with_a_relative_path(tmp_path: Path) -> None:
    """Prevents: a process does not find packs after it changed its working directory."""
    bundle = copy(tmp_path / "bundle", "gfx950")
    code = (
        "os.chdir(sys.argv[1])\n"
        "caller = Caller(Path(), sys.argv[2], Path(sys.argv[3]))\n"
        "os.chdir('/')\n"
        "print('\\nstatus', caller.answers(rows[0])['status'])\n"
    )
    output = program(code, rows_with_kernels(GFX950)[:1], "gfx950", tmp_path, bundle, caller=False)
    assert "\nstatus 0\n" in output


def test_a_wheel_names_its_package(tmp_path: Path) -> None:
    """Prevents: the suggested command installs another version, or a wrong package."""
    bundle = copy(tmp_path / "site/qola_te_x")
    (bundle / "__init__.py").touch()
    (tmp_path / "site/qola_te_x-1.2.3rc1.dist-info").mkdir()
    (tmp_path / "site/qola_te_x_gfx942-1.2.3rc1.dist-info").mkdir()
    _, error = run(bundle, GFX950, tmp_path / "log")
    assert "; fix: pip install qola-te-x-gfx950==1.2.3rc1\n" in error


def test_packs_of_another_build_and_damaged_ones(tmp_path: Path) -> None:
    """Prevents: code of another build or damaged code is launched; an error names no file."""
    library = f"{NAMESPACE}_libmha_fwd"
    right = (SPLIT / f"lib/{library}-gfx950.qpack").read_bytes()
    other = (SPLIT / f"lib/{library}-gfx942.qpack").read_bytes()
    changed = bytearray(right)
    # Change bytes everywhere in the code, so that the code of each kernel changes.
    start = right.index(b"CCOB")
    changed[start + 64 :: 512] = bytes(b ^ 1 for b in changed[start + 64 :: 512])
    for name, data, expected in (
        ("other", other, "is not of the same build as"),
        ("changed", bytes(changed), "is damaged: its code has the digest "),
        ("cut", right[:-4000], "goes beyond its "),
        ("table", right[:20] + b"\1" + right[21:], "does not have the digest behind it"),
        ("empty", b"", "it does not begin with QOLAPCK1"),
    ):
        bundle = copy(tmp_path / name, "gfx950")
        pack = bundle / f"lib/{library}-gfx950.qpack"
        pack.write_bytes(data)
        answers, error = run(bundle, GFX950, tmp_path / f"{name}.log")
        statuses = [answer["status"] == UNAVAILABLE for answer in answers]
        assert statuses == [True, False, True, False], (name, answers, error)
        (message,) = [line for line in error.splitlines() if str(pack) in line]
        assert expected in message


def test_a_pack_that_others_may_write(tmp_path: Path) -> None:
    """Prevents: a process launches device code that another user wrote."""
    bundle = copy(tmp_path / "open", "gfx950")
    for pack in packs(bundle):
        pack.chmod(0o666)
    answers, error = run(bundle, GFX950, tmp_path / "log")
    assert all(answer["status"] == UNAVAILABLE for answer in answers)
    assert f"{packs(bundle)[0]}" in error


def program(
    code: str, rows: list[Row], archs: str, tmp_path: Path, bundle: Path, *, caller: bool = True
) -> str:
    """Run Python with the fields of rows and, with `caller`, a Caller; return standard output."""
    head = (
        "import os, sys, threading\nfrom pathlib import Path\n"
        "from tests.library.calls import Caller\n"
        f"{CALLER if caller else ''}"
        "rows = [dict(word.split('=', 1) for word in row.split()) for row in sys.argv[4:]]\n"
    )
    lines = [line_of(row.problem) for row in rows]
    command: list[str | Path] = ["-c", head + code, bundle, NAMESPACE, HEADER, *lines]
    log = tmp_path / "log"
    result: subprocess.CompletedProcess[str] = python(command, GFX950, log, FAKE_HIP_ARCH=archs)
    assert result.returncode == 0, result.stderr
    return result.stdout


def log_archs(tmp_path: Path) -> list[str]:
    """Return the archs of logged launches, without consecutive repetitions."""
    archs = [launch.arch for launch in read_log(tmp_path / "log")]
    return [arch for at, arch in enumerate(archs) if at == 0 or archs[at - 1] != arch]


def test_devices_of_several_archs(tmp_path: Path) -> None:
    """Prevents: all devices get the first device's code; one missing pack fails all devices."""
    rows = rows_with_kernels(GFX950)[:2]
    code = (
        "for device in (0, 1, 2, 1, 0):\n"
        "    assert caller.hip.hipSetDevice(device) == 0\n"
        "    print(device, *(caller.answers(row)['status'] for row in rows))\n"
    )

    def statuses(bundle: Path) -> list[list[int]]:
        (tmp_path / "log").unlink(missing_ok=True)
        output = program(code, rows, "gfx950,gfx942,gfx950", tmp_path, bundle)
        lines = [line for line in output.splitlines() if line[:2] in ("0 ", "1 ", "2 ")]
        assert [line[0] for line in lines] == ["0", "1", "2", "1", "0"]
        return [[int(word) for word in line.split()[1:]] for line in lines]

    # AITER loads an assembly kernel only for the first device; on other devices, backward fails.
    full = statuses(BUNDLE)
    archs = log_archs(tmp_path)
    assert archs == ["gfx950", "gfx942", "gfx950", "gfx942", "gfx950"]
    assert statuses(SPLIT) == full
    assert log_archs(tmp_path) == archs
    one_arch = statuses(copy(tmp_path / "one", "gfx950"))
    assert [one_arch[at] for at in (0, 2, 4)] == [full[at] for at in (0, 2, 4)]
    assert OK not in one_arch[1] + one_arch[3]
    assert UNAVAILABLE in one_arch[1]


def test_first_calls_of_threads(tmp_path: Path) -> None:
    """Prevents: concurrent first calls launch a kernel twice or never, or return a wrong status."""
    rows = rows_with_kernels(GFX950)
    code = (
        "got = []\n"
        "ready = threading.Barrier(8)\n"
        "def work():\n"
        "    ready.wait()\n"
        "    got.extend(caller.answers(row)['status'] for row in rows)\n"
        "threads = [threading.Thread(target=work) for _ in range(8)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "print('\\n', len(got), sum(got))\n"
    )
    output = program(code, rows, "gfx950", tmp_path, SPLIT)
    assert f" {8 * len(rows)} 0\n" in output


def test_processes_and_unloading(tmp_path: Path) -> None:
    """Prevents: a forked child, or a library that is loaded again, has no device code."""
    rows = rows_with_kernels(GFX950)[:1]
    code = (
        "child = os.fork()\n"
        "status = caller.answers(rows[0])['status']\n"
        "if child == 0: os._exit(status & 255)\n"
        "print('\\nforked', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), status)\n"
        "for library in caller.libraries.values(): caller.ffi.dlclose(library)\n"
        f"del caller\n{CALLER}"
        "print('\\nagain', caller.answers(rows[0])['status'])\n"
    )
    output = program(code, rows, "gfx950", tmp_path, SPLIT)
    assert "\nforked 0 0\n" in output
    assert "\nagain 0\n" in output
