"""A remote cache on a real nginx: hits replace compiles, and a cache failure never breaks a build.

The tests compile tiny kernels and check which cache or compiler supplied each object. They use the
configurations of this repository's .bazelrc.
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
from tests.e2e.nested_bazel import QOLA, Bazel, count_spawns, overrides, shared_directory
from tools.remote.loopback import free_port
from tools.remote.nginx_cache import Settings, command, serving

# In the runfiles of the test, next to this repository.
NGINX = Path("..", os.environ["QOLA_TEST_NGINX"])
KERNELS = range(6)
HIT = "remote cache hit"
PASSWORD = "correct horse"
MODULE = f"""
module(name = "cached")
bazel_dep(name = "qola", version = "0.1.0")
bazel_dep(name = "rules_hip", version = "0.1.0")
{overrides(QOLA)}
"""
BAZELRC = f"""
import {QOLA}/.bazelrc
build --sandbox_add_mount_pair=/tmp --platforms=@rules_hip//rocm:linux_x86_64
build --compilation_mode=opt --force_pic
"""
BUILD = f"""
load("@qola//rules/private:generated.bzl", "header_set", "kernel_unit")
KERNELS = ["kernel%d" % number for number in range({len(KERNELS)})]
header_set(name = "headers", headers = ["scale.hpp"], include_dirs = ["."], tree = "scale.hpp")
# Without ROCm's headers, which cost more than these kernels.
kernel_unit(
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


#: A few kernels, and a target that must read all of them.
FILES = {
    "MODULE.bazel": MODULE,
    ".bazelrc": BAZELRC,
    "BUILD.bazel": BUILD,
    **{f"made/kernels/kernel{number}.cpp": KERNEL.format(number=number) for number in KERNELS},
}


@dataclass(frozen=True)
class Built:
    """Result of a build; `digests` is the text of the target that reads every kernel."""

    digests: str
    spawns: Counter[tuple[str, str]]
    messages: str

    def runners(self) -> Counter[str]:
        """Return the number of results by their source."""
        return Counter(runner for _, runner in self.spawns.elements())


@dataclass(frozen=True)
class User:
    """A user with a separate workspace and output base."""

    bazel: Bazel

    def build(self, *options: str) -> Built:
        """Build without existing outputs, as after `bazel clean`, but do not analyse again."""
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


def make_user(directory: Path, disk_cache: Path) -> User:
    """Create a workspace in a shared directory, with an empty cache."""
    workspace = directory / "workspace"
    # Delete outputs of an earlier run: Bazel would find them up to date. The links of the workspace
    # may belong to another test.
    for outputs in directory.glob("output_base/execroot/_main/bazel-out/*/bin"):
        shutil.rmtree(outputs)
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir(parents=True)
    user = User(Bazel(workspace, directory / "output_base", disk_cache))
    for name, text in FILES.items():
        user.bazel.write(name, text)
    user.scale(1.0)
    return user


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> User:
    """A CI job, which may write to the cache."""
    return make_user(shared_directory(), tmp_path_factory.mktemp("writer"))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> User:
    """A developer with another path and output base."""
    return make_user(shared_directory("elsewhere"), tmp_path_factory.mktemp("reader"))


@dataclass(frozen=True)
class Cache:
    """A cache server; `writers` is the --remote_header of users with write access."""

    settings: Settings
    writers: str

    @property
    def blobs(self) -> Path:
        """The directory with the entries, ac/ and cas/."""
        return self.settings.directory / "blobs"

    def requests(self) -> Counter[tuple[str, str]]:
        """Return the number of requests so far by (method, status)."""
        assert self.settings.access_log
        lines = self.settings.access_log.read_text(encoding="utf-8").splitlines()
        return Counter((line.split(" ")[0], line.split(" ")[1]) for line in lines)

    def entry(self, digest: str) -> Path:
        """Return the file of the action result that names an output."""
        found = [p for p in (self.blobs / "ac").iterdir() if digest.encode() in p.read_bytes()]
        assert len(found) == 1
        return found[0]


def authorization(password: str) -> str:
    """Return the --remote_header that Bazel derives from `user:password` in a URL."""
    token = base64.b64encode(f"ci:{password}".encode()).decode("ascii")
    return f"--remote_header=Authorization=Basic {token}"


def settings(directory: Path) -> Settings:
    """Return settings with which everybody reads and users in a password file write."""
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
    """A cache that CI filled, and the result of CI's build."""
    cache_server = Cache(settings(tmp_path_factory.mktemp("server")), authorization(PASSWORD))
    with serving(NGINX, cache_server.settings):
        cache = f"--remote_cache={cache_server.settings.url}"
        yield cache_server, writer.build("--config=remote-cache-write", cache, cache_server.writers)


def read(filled: tuple[Cache, Built]) -> tuple[str, str]:
    """Return a developer's options."""
    return "--config=remote-cache", f"--remote_cache={filled[0].settings.url}"


def test_build_elsewhere_runs_no_compiler(filled: tuple[Cache, Built], reader: User) -> None:
    """Prevents: cache keys depend on a path, so developers never hit the cache of CI."""
    cache, written = filled
    assert HIT not in written.runners()
    assert sum(written.runners().values()) > len(KERNELS)
    before = cache.requests()
    built = reader.build(*read(filled), "--disk_cache=")
    assert set(built.runners()) == {HIT}, built.spawns
    assert sum(built.runners().values()) == sum(written.runners().values())
    assert built.digests == written.digests
    assert cache.requests()["PUT", "201"] == before["PUT", "201"] > 0


def test_disk_cache_keeps_downloads(filled: tuple[Cache, Built], reader: User) -> None:
    """Prevents: each clean build downloads again, or a developer cannot build offline."""
    reader.build(*read(filled))
    before = filled[0].requests()
    built = reader.build(*read(filled))
    assert set(built.runners()) == {"disk cache hit"}
    assert filled[0].requests() == before


@pytest.mark.thorough
def test_a_reader_may_not_write(filled: tuple[Cache, Built], reader: User) -> None:
    """Prevents: a developer writes into the shared cache, or a build needs write access."""
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
    """Prevents: Bazel rejects the documented credential helper."""
    token = authorization(PASSWORD).partition("=Authorization=")[2]
    helper = tmp_path / "helper"
    helper.write_text(
        "#!/bin/sh\ncat >/dev/null\n"
        f"""echo '{{"headers": {{"Authorization": ["{token}"]}}}}'\n""",
        encoding="utf-8",
    )
    helper.chmod(0o755)
    # Bazel's server caches the credentials and rejects a second password. The other tests with a
    # password use another Bazel server.
    writer.scale(3.0)
    before = filled[0].requests()
    option = f"--credential_helper=127.0.0.1={helper}"
    built = writer.build("--config=remote-cache-write", read(filled)[1], option)
    assert "WARNING: Remote Cache" not in built.messages
    assert filled[0].requests()["PUT", "201"] > before["PUT", "201"]


def test_lost_and_damaged_entries(filled: tuple[Cache, Built], reader: User) -> None:
    """Prevents: lost or damaged cache entries fail a build, or a library contains wrong bytes."""
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
    # Three actions and their dependents run again. Bazel prints no warning for a lost entry.
    assert 3 <= sum(built.runners().values()) - built.runners()[HIT] <= 6, built.spawns
    assert re.search(r"INFO: \d+ processes: \d+ remote cache hit", built.messages)

    # A build with write access repairs the cache.
    repaired = reader.build("--config=remote-cache-write", read(filled)[1], cache.writers)
    assert repaired.digests == written.digests
    assert repaired.runners() == built.runners(), repaired.messages
    again = reader.build(*options)
    assert set(again.runners()) == {HIT}, again.spawns
    assert "WARNING" not in again.messages


def test_server_dies_in_the_middle(
    filled: tuple[Cache, Built], reader: User, tmp_path: Path
) -> None:
    """Prevents: a build fails because the cache server stops."""
    cache, written = filled
    server_settings = replace(cache.settings, port=free_port(), access_log=tmp_path / "access.log")
    server = subprocess.Popen(command(NGINX, server_settings), start_new_session=True)

    def kill_after_hits() -> None:
        assert server_settings.access_log
        while server.poll() is None:
            # With one job, the first two results are complete when Bazel looks up the third.
            if (
                server_settings.access_log.exists()
                and server_settings.access_log.read_text().count("GET 200 /ac/") >= 3
            ):
                os.killpg(server.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                server.wait(0.005)

    watcher = threading.Thread(target=kill_after_hits)
    watcher.start()
    url = f"--remote_cache={server_settings.url}"
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
    """Write an authority, a certificate for 127.0.0.1 and a client's: NAME.pem and NAME.key."""

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
    """Prevents: Bazel cannot connect with the documented TLS setup, or all clients may write."""
    make_certificates(tmp_path)
    server_settings = replace(
        filled[0].settings,
        port=free_port(),
        access_log=tmp_path / "access.log",
        writers=None,
        certificate=tmp_path / "server.pem",
        key=tmp_path / "server.key",
        client_ca=tmp_path / "authority.pem",
    )
    cache = Cache(server_settings, "")
    options = [
        f"--remote_cache={server_settings.url}",
        f"--tls_certificate={tmp_path}/authority.pem",
    ]
    with serving(NGINX, server_settings):
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
