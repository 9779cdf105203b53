"""Sources of Debian packages: real downloads from a server on the loopback interface."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.servers.deb_files import deb, sha256
from tests.servers.http_files import Files
from tests.setup.machines import APT_HELPER, PACKAGES, TIME, Machine, mirror, path, remove_programs

needs_apt = pytest.mark.skipif(not Path(APT_HELPER).exists(), reason="needs apt")


@needs_apt
def test_sources_in_their_order(machine: Machine, server: Files) -> None:
    """Prevents: a mirror that lost one of three packages stops the setup."""
    server.content |= mirror("named", "alpha") | mirror("own", "alpha", "beta+b1")
    server.content |= mirror(f"snapshot/{TIME}", *PACKAGES)
    machine.sources("own")
    machine.variables["QOLA_DEBIAN_MIRROR"] = f"{server.url}/named"
    result = machine.run("fetch_packages")
    assert result.returncode == 0, result.stderr
    assert machine.fetched() == set(PACKAGES)
    served = [requested for requested in server.paths() if requested.endswith(".deb")]
    lost = [p for p in served if "gamma" in p]
    assert [p.split("/")[1] for p in lost] == ["named", "own", "snapshot"]
    assert [p for p in served if p.startswith("/snapshot") and "gamma" not in p] == []


@pytest.mark.parametrize(
    "missing", [("apt", "dpkg"), ("apt", "dpkg", "curl")], ids=["curl", "wget"]
)
def test_without_apt_and_dpkg(machine: Machine, server: Files, missing: tuple[str, ...]) -> None:
    """Prevents: only Debian, which has apt and dpkg, can build a private tree."""
    server.content |= mirror(f"snapshot/{TIME}", *PACKAGES)
    remove_programs(machine, *missing)
    if not shutil.which("wget" if "curl" in missing else "curl", path=machine.programs):
        pytest.skip("no such program here")
    result = machine.run("no_tree_because || echo possible; fetch_packages")
    assert result.returncode == 0, result.stderr
    assert "made of Debian packages" not in result.stdout
    assert machine.fetched() == set(PACKAGES)
    for suffix in (".xz", ".gz", ""):
        (machine.directory / "debs/x.deb").write_bytes(deb({"./usr/odd": "x"}, suffix))
        result = machine.run("deb_tar x.deb | tar -xO ./usr/odd")
        assert (result.returncode, result.stdout) == (0, "x"), result.stderr
    result = machine.run("deb_tar apt.conf || echo refused")
    assert result.stdout == "refused\n"


def test_no_program_to_fetch(machine: Machine) -> None:
    """Prevents: "command not found" on a machine without apt, curl and wget."""
    remove_programs(machine, "apt", "dpkg", "curl", "wget")
    result = machine.run("no_tree_because")
    assert "neither apt nor curl nor wget is here to fetch them" in result.stdout


@needs_apt
def test_sources_of_another_distribution(machine: Machine, server: Files) -> None:
    """Prevents: bazelw requests 341 packages of Debian from Ubuntu's mirrors."""
    ubuntu = b"Origin: Ubuntu\nSuite: noble\n"
    server.content |= mirror("ubuntu", *PACKAGES, release=ubuntu)
    server.content |= mirror(f"snapshot/{TIME}", *PACKAGES)
    machine.sources("ubuntu", suite="noble")
    result = machine.run("fetch_packages")
    assert result.returncode == 0, result.stderr
    assert machine.fetched() == set(PACKAGES)
    assert not [p for p in server.paths() if p.startswith("/ubuntu/pool")]


def test_an_error_lists_all_missing_packages(machine: Machine, server: Files) -> None:
    """Prevents: the error lists only one missing package, or no date of the lock."""
    server.content |= mirror(f"snapshot/{TIME}", "alpha")
    result = machine.run("fetch_packages || nowhere")
    assert result.returncode == 3
    assert (
        "2 of 3 packages that third_party/debian/packages.lock pins, as of 2026-10-30 14:08 UTC"
        in (result.stderr)
    )
    assert "  beta+b1 1\n  gamma~x 1\n" in result.stderr
    assert f"{server.url}/snapshot/{TIME}: lacks 2" in result.stderr


def test_a_wrong_file_is_refused(machine: Machine, server: Files) -> None:
    """Prevents: bazelw unpacks a wrong file, or keeps it for the next try."""
    server.content |= mirror("named", "beta+b1", "gamma~x")
    machine.variables["QOLA_DEBIAN_MIRROR"] = f"{server.url}/named"
    (machine.directory / "debs").mkdir()
    (machine.directory / "debs" / Path(path("alpha")).name).write_bytes(b"something else")
    result = machine.run("fetch_packages || missing_text")
    actual, locked = sha256(b"something else"), sha256(PACKAGES["alpha"])
    assert f"refused: alpha 1: sha256 is {actual}, locked is {locked}" in result.stderr
    assert "  alpha 1\n" in result.stdout
    assert machine.fetched() == {"beta+b1", "gamma~x"}
    # The next try fetches only this package.
    server.content |= mirror("named", "alpha")
    server.requests.clear()
    result = machine.run("fetch_packages")
    assert result.returncode == 0, result.stderr
    assert server.paths() == [f"/named/{path('alpha')}"]


def test_passwords_of_mirrors_are_not_shown(machine: Machine) -> None:
    """Prevents: a CI log shows the password of a mirror."""
    assert machine.run('bare "https://me:secret@host/debian"').stdout == "https://host/debian\n"


@needs_apt
def test_the_doctor_reports_which_servers_answer(machine: Machine, server: Files) -> None:
    """Prevents: doctor reports that a tree can be built although no server has its packages."""
    machine.sources("own")
    result = machine.run("doctor_sources")
    assert result.returncode == 1
    assert f"{server.url}/own does not answer, or is not Debian's archive\n" in result.stdout
    server.content |= mirror(f"snapshot/{TIME}")
    result = machine.run("doctor_sources")
    assert result.returncode == 0
    assert f"{server.url}/snapshot/{TIME} answers\n" in result.stdout
    assert "third_party/debian/packages.lock, as of 2026-10-30 14:08 UTC" in result.stdout
