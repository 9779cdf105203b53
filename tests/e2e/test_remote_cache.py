"""A remote cache on a real nginx: elsewhere no compiler runs, and no fault of it breaks a build.

The kernels are tiny; what is measured is where their objects come from. The configurations are
those of this repository's .bazelrc.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from qola.report.execution_log import read_spawns
from tests.e2e.nested_bazel import QOLA, Bazel, count_spawns, overrides, shared_place
from tools.remote.loopback import free_port
from tools.remote.nginx_cache import Settings, command, serving

# Beside this repository, among the files a test is given.
NGINX = Path("..", os.environ["QOLA_TEST_NGINX"])
KERNELS = range(6)
HIT = "remote cache hit"
PASSWORD = "correct horse"
MODULE = f"""
module(name = "cached")
bazel_dep(name = "qola", version = "0.1.0")
{overrides(QOLA)}
"""
BAZELRC = f"""
import {QOLA}/.bazelrc
build --sandbox_add_mount_pair=/tmp --platforms=@qola//rules/rocm:linux_x86_64
build --compilation_mode=opt --force_pic
"""
BUILD = f"""
load("@qola//rules/private:generated.bzl", "header_set", "kernel_instances")
KERNELS = ["kernel%d" % number for number in range({len(KERNELS)})]
header_set(name = "headers", headers = ["scale.hpp"], include_dirs = ["."], tree = "scale.hpp")
# Without ROCm's headers, which cost more than these kernels.
kernel_instances(
    name = "made/scale",
    copts = ["-nogpuinc"],
    directory = "made",
    headers = ":headers",
    kernels = {{k: ["gfx950"] for k in KERNELS}},
)
genrule(
    name = "digests",
    srcs = ["made/scale/" + k for k in KERNELS],
    outs = ["digests.txt"],
    cmd = "sha256sum $(SRCS) > $@",
)
"""
KERNEL = """
#include "scale.hpp"
__attribute__((device)) float scale{number}(float x) {{ return x * SCALE + {number}; }}
float on_host{number}(float x) {{ return x * SCALE + {number}; }}
"""


#: A few kernels, and a target that has to read all of them.
FILES = {
    "MODULE.bazel": MODULE,
    ".bazelrc": BAZELRC,
    "BUILD.bazel": BUILD,
    **{f"made/kernels/kernel{number}.cpp": KERNEL.format(number=number) for number in KERNELS},
}


@dataclass(frozen=True)
class Built:
    """What one build did; `digests` is the text of the target that reads every kernel."""

    digests: str
    spawns: Counter[tuple[str, str]]
    messages: str

    def runners(self) -> Counter[str]:
        """Where results came from -> count."""
        return Counter(runner for _, runner in self.spawns.elements())


@dataclass(frozen=True)
class User:
    """Somebody with a workspace and an output base of their own."""

    bazel: Bazel

    def build(self, *options: str) -> Built:
        """Build with no output there, which is what `bazel clean` does, but analyse only once."""
        shutil.rmtree((self.bazel.workspace / "bazel-bin").resolve(), ignore_errors=True)
        log = self.bazel.output_base.with_suffix(".log")
        result = self.bazel.run("build", *options, f"--execution_log_json_file={log}", "//:digests")
        return Built(
            digests=(self.bazel.workspace / "bazel-bin/digests.txt").read_text(encoding="utf-8"),
            spawns=count_spawns(read_spawns(log)),
            messages=result.stderr,
        )

    def scale(self, factor: float) -> None:
        """Change the header that every kernel includes."""
        self.bazel.write("scale.hpp", f"#define SCALE {factor}f\n")


def make_user(place: Path, disk_cache: Path) -> User:
    """A workspace in a place that tests have in common, with an empty cache."""
    workspace = place / "workspace"
    # What a run before left has the same files: nothing would be built. The workspace may have
    # been another test's since, whose links lead elsewhere.
    for outputs in place.glob("output_base/execroot/_main/bazel-out/*/bin"):
        shutil.rmtree(outputs)
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir(parents=True)
    user = User(Bazel(workspace, place / "output_base", disk_cache))
    for name, text in FILES.items():
        user.bazel.write(name, text)
    user.scale(1.0)
    return user


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> User:
    """CI."""
    return make_user(shared_place(), tmp_path_factory.mktemp("writer"))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> User:
    """A developer with another path and output base."""
    return make_user(shared_place("elsewhere"), tmp_path_factory.mktemp("reader"))


@dataclass(frozen=True)
class Cache:
    """A cache server; `writers` is the --remote_header of those who may write."""

    settings: Settings
    writers: str

    @property
    def blobs(self) -> Path:
        """What it keeps: ac/ and cas/."""
        return self.settings.directory / "blobs"

    def requests(self) -> Counter[tuple[str, str]]:
        """(method, status) -> count, of all that was asked so far."""
        assert self.settings.access_log
        lines = self.settings.access_log.read_text(encoding="utf-8").splitlines()
        return Counter((line.split(" ")[0], line.split(" ")[1]) for line in lines)

    def entry(self, digest: str) -> Path:
        """The action result that names an output."""
        found = [p for p in (self.blobs / "ac").iterdir() if digest.encode() in p.read_bytes()]
        assert len(found) == 1
        return found[0]


def authorization(password: str) -> str:
    """A --remote_header as `user:password` in a URL would make it."""
    token = base64.b64encode(f"ci:{password}".encode()).decode("ascii")
    return f"--remote_header=Authorization=Basic {token}"


def settings(directory: Path) -> Settings:
    """Everybody reads, those in a password file write."""
    passwords = directory / "writers"
    passwords.write_text(f"ci:{{PLAIN}}{PASSWORD}\n", encoding="utf-8")
    return Settings(
        directory=directory / "cache",
        port=free_port(),
        writers=passwords,
        access_log=directory / "access.log",
    )


@pytest.fixture(scope="module")
def filled(writer: User, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cache, Built]]:
    """A cache that CI has filled, and what CI built."""
    made = Cache(settings(tmp_path_factory.mktemp("server")), authorization(PASSWORD))
    with serving(NGINX, made.settings):
        cache = f"--remote_cache={made.settings.url}"
        yield made, writer.build("--config=remote-cache-write", cache, made.writers)


def read(filled: tuple[Cache, Built]) -> tuple[str, str]:
    """The options of a developer."""
    return "--config=remote-cache", f"--remote_cache={filled[0].settings.url}"


def test_build_elsewhere_runs_no_compiler(filled: tuple[Cache, Built], reader: User) -> None:
    """Prevents: keys that depend on a path, so that a cache which CI filled serves nobody."""
    cache, written = filled
    assert HIT not in written.runners()
    assert sum(written.runners().values()) > len(KERNELS)
    before = cache.requests()
    built = reader.build(*read(filled), "--disk_cache=")
    assert set(built.runners()) == {HIT}, built.spawns
    assert sum(built.runners().values()) == sum(written.runners().values())
    assert built.digests == written.digests
    assert cache.requests()["PUT", "201"] == before["PUT", "201"] > 0


def test_disk_cache_keeps_what_was_read(filled: tuple[Cache, Built], reader: User) -> None:
    """Prevents: a download per clean build, or a developer who is stuck without the network."""
    reader.build(*read(filled))
    before = filled[0].requests()
    built = reader.build(*read(filled))
    assert set(built.runners()) == {"disk cache hit"}
    assert filled[0].requests() == before


@pytest.mark.thorough
def test_a_reader_may_not_write(filled: tuple[Cache, Built], reader: User) -> None:
    """Prevents: a developer's objects in everybody's cache, or a build that needs the right."""
    cache, written = filled
    reader.scale(2.0)
    upload = ["--disk_cache=", "--remote_upload_local_results"]
    before = cache.requests()
    built = reader.build(*read(filled), *upload)
    assert HIT not in built.runners()
    assert built.digests != written.digests
    assert "WARNING: Remote Cache: " in built.messages
    assert "401 Unauthorized" in built.messages
    assert cache.requests()["PUT", "201"] == before["PUT", "201"]

    wrong = reader.build(*read(filled), *upload, authorization("wrong"))
    assert wrong.digests == built.digests
    assert "401 Unauthorized" in wrong.messages
    assert cache.requests()["PUT", "201"] == before["PUT", "201"]
    reader.scale(1.0)


@pytest.mark.thorough
def test_credential_helper(filled: tuple[Cache, Built], writer: User, tmp_path: Path) -> None:
    """Prevents: a documented way to give a password that Bazel does not take."""
    token = authorization(PASSWORD).partition("=Authorization=")[2]
    helper = tmp_path / "helper"
    helper.write_text(
        "#!/bin/sh\ncat >/dev/null\n"
        f"""echo '{{"headers": {{"Authorization": ["{token}"]}}}}'\n""",
        encoding="utf-8",
    )
    helper.chmod(0o755)
    # Bazel's server remembers the answer, and a password given twice is refused: the other tests
    # that name one use another server.
    writer.scale(3.0)
    before = filled[0].requests()
    option = f"--credential_helper=127.0.0.1={helper}"
    built = writer.build("--config=remote-cache-write", read(filled)[1], option)
    assert "WARNING: Remote Cache" not in built.messages
    assert filled[0].requests()["PUT", "201"] > before["PUT", "201"]


def test_lost_and_damaged_entries(filled: tuple[Cache, Built], reader: User) -> None:
    """Prevents: a build that fails, or that links wrong bytes, for what happened to the cache."""
    cache, written = filled
    digests = [line.split()[0] for line in written.digests.splitlines()]
    lost, flipped, truncated = digests[:3]
    (cache.blobs / "cas" / lost).unlink()
    path = cache.blobs / "cas" / flipped
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    path = cache.entry(truncated)
    path.write_bytes(path.read_bytes()[:-20])

    options = [*read(filled), "--disk_cache="]
    built = reader.build(*options)
    assert built.digests == written.digests
    assert f"Expected digest '{flipped}/" in built.messages
    assert "WARNING: Remote Cache: While parsing a protocol message" in built.messages
    # The three, and whatever else was made of them; Bazel counts a lost one, and says no more.
    assert 3 <= sum(built.runners().values()) - built.runners()[HIT] <= 6, built.spawns
    assert re.search(r"INFO: \d+ processes: \d+ remote cache hit", built.messages)

    # Who may write mends the cache.
    mended = reader.build("--config=remote-cache-write", read(filled)[1], cache.writers)
    assert mended.digests == written.digests
    assert mended.runners() == built.runners(), mended.messages
    again = reader.build(*options)
    assert set(again.runners()) == {HIT}, again.spawns
    assert "WARNING" not in again.messages


def test_server_dies_in_the_middle(
    filled: tuple[Cache, Built], reader: User, tmp_path: Path
) -> None:
    """Prevents: a cache that is down and a build that is down with it."""
    cache, written = filled
    own = replace(cache.settings, port=free_port(), access_log=tmp_path / "access.log")
    server = subprocess.Popen(command(NGINX, own), start_new_session=True)

    def kill_after_hits() -> None:
        assert own.access_log
        while server.poll() is None:
            # One job: when the third is looked up, the first two have all that they need.
            if own.access_log.exists() and own.access_log.read_text().count("GET 200 /ac/") >= 3:
                os.killpg(server.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                server.wait(0.005)

    watcher = threading.Thread(target=kill_after_hits)
    watcher.start()
    url = f"--remote_cache={own.url}"
    try:
        built = reader.build("--config=remote-cache", url, "--disk_cache=", "--jobs=1")
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        watcher.join()
    assert built.digests == written.digests
    assert "WARNING: Remote Cache: " in built.messages
    assert built.runners()[HIT] >= 2
    assert sum(built.runners().values()) > built.runners()[HIT], built.spawns


def make_certificates(directory: Path) -> None:
    """An authority, a certificate for 127.0.0.1 and a client's: NAME.pem and NAME.key."""

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=directory, check=True, capture_output=True)

    key = ("-newkey", "rsa:2048", "-noenc")
    openssl(
        *("req", "-x509", *key, "-subj", "/CN=authority", "-days", "2"),
        *("-keyout", "authority.key", "-out", "authority.pem"),
    )
    for name in ("server", "client"):
        openssl(
            "req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"
        )
        (directory / "extensions").write_text("subjectAltName=IP:127.0.0.1\n", encoding="utf-8")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-days", "2", "-extfile", "extensions"),
            *("-CA", "authority.pem", "-CAkey", "authority.key", "-out", f"{name}.pem"),
        )


@pytest.mark.thorough
@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_client_certificates(filled: tuple[Cache, Built], reader: User, tmp_path: Path) -> None:
    """Prevents: a documented TLS set-up with which Bazel does not connect, or anybody writes."""
    make_certificates(tmp_path)
    own = replace(
        filled[0].settings,
        port=free_port(),
        access_log=tmp_path / "access.log",
        writers=None,
        certificate=tmp_path / "server.pem",
        key=tmp_path / "server.key",
        client_ca=tmp_path / "authority.pem",
    )
    cache = Cache(own, "")
    options = [f"--remote_cache={own.url}", f"--tls_certificate={tmp_path}/authority.pem"]
    with serving(NGINX, own):
        built = reader.build("--config=remote-cache", "--disk_cache=", *options)
        assert set(built.runners()) == {HIT}, built.messages
        reader.scale(4.0)
        built = reader.build("--config=remote-cache-write", *options)
        assert "403 Forbidden" in built.messages
        assert cache.requests()["PUT", "201"] == 0
        built = reader.build(
            "--config=remote-cache-write",
            *options,
            f"--tls_client_certificate={tmp_path}/client.pem",
            f"--tls_client_key={tmp_path}/client.key",
        )
        assert cache.requests()["PUT", "201"] > 0, built.messages
        reader.scale(1.0)
