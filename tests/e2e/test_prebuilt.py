"""A bundle that is published to a real nginx and fetched by another user's qola build and Bazel."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.e2e.nested_bazel import EXAMPLE, Bazel, User, bazel, check_sbom, disk_cache_option
from tools.remote.loopback import free_port, listening
from tools.remote.programs import Programs

# In the runfiles of the test, next to this repository.
NGINX = Path("..", os.environ["QOLA_TEST_NGINX"])
CONFIG = """\
{user}worker_processes 1;
pid "{directory}/nginx.pid";
error_log stderr warn;
events {{
    worker_connections 64;
}}
http {{
    access_log "{directory}/access.log";
    client_body_temp_path "{directory}/unused";
    proxy_temp_path "{directory}/unused";
    fastcgi_temp_path "{directory}/unused";
    uwsgi_temp_path "{directory}/unused";
    scgi_temp_path "{directory}/unused";
    client_max_body_size 0;
    server {{
        listen 127.0.0.1:{port};
        root "{directory}/files";
        dav_methods PUT;
        create_full_put_path on;
    }}
}}
"""
PREBUILT = """
qola.prebuilt(name = "{side}", manifest = "{side}", urls = ["{url}"], public_key = "{key}")
use_repo(qola, "qola_prebuilt_{side}")
"""


@dataclass(frozen=True)
class Server:
    """An nginx with prebuilt bundles.

    Attributes:
        keys: path prefix of the key pair that signs.
        key: prebuilt key of the bundle of left.toml.
    """

    directory: Path
    url: str
    keys: Path
    key: str

    @property
    def archive(self) -> Path:
        """The archive that nginx serves."""
        return self.directory / f"files/team/{self.key}.tar.gz"


def make_user(directory: Path) -> User:
    """Return a user with left.toml in a new directory."""
    directory.mkdir(parents=True)
    shutil.copy(EXAMPLE / "left.toml", directory)
    return User(directory)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An nginx with the published, signed bundle of left.toml."""
    directory = tmp_path_factory.mktemp("server")
    for name in ("files", "unused"):
        (directory / name).mkdir()
    port = free_port()
    user = pwd.getpwuid(os.getuid()).pw_name
    config = directory / "nginx.conf"
    text = CONFIG.format(
        directory=directory, port=port, user="" if os.geteuid() else f"user {user} {user};\n"
    )
    config.write_text(text, encoding="utf-8")
    command = [
        *Programs(NGINX.resolve().parents[2]).command("nginx"),
        *("-e", "stderr", "-p", str(directory), "-c", str(config), "-g", "daemon off;"),
    ]
    builder = make_user(directory / "builder")
    builder.qola("keygen", "k")
    url = f"http://127.0.0.1:{port}/team"
    arguments = ("publish", "-m", "left.toml", "--to", url, "--secret-key", "k.key")
    cache = disk_cache_option()
    with listening(command, port, name="nginx"):
        published = builder.qola(*arguments, cache)
        key = published.stdout.partition(":")[0]
        again = builder.qola(*arguments, cache)
        assert again.stdout.startswith(f"{key}: there already, ")
        yield Server(directory, url, builder.directory / "k", key)


def test_fetched_without_bazel(server: Server, tmp_path: Path) -> None:
    """Prevents: a fetch needs Bazel, or fetched files differ from the published files."""
    user = make_user(tmp_path / "user")
    options = ("--prebuilt", server.url, "--public-key", f"{server.keys}.pub")
    built = user.qola("build", "-m", "left.toml", "-o", "out", *options, QOLA_BAZEL="/bin/false")
    assert f"prebuilt {server.key} from {server.url}" in built.stderr
    output = user.directory / "out"
    record = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
    (module,) = record["modules"]
    library = (output / module["library"]).read_bytes()
    assert hashlib.sha256(library).hexdigest() == module["sha256"]
    # The SBOM lists the files with their digests at publication.
    check_sbom(output)


def test_the_rocm_of_this_machine(server: Server) -> None:
    """Prevents: another compiler's libraries get the key of the pinned one; a key without ROCm."""
    arguments = ("fetch", "-m", "left.toml", "--print-key")
    builder = User(server.keys.parent)
    assert builder.qola(*arguments).stdout == f"{server.key}\n"
    failed = builder.qola(*arguments, QOLA_ROCM="/no/such/rocm", code=5)
    assert "no ROCm where it is looked for" in failed.stderr


@pytest.fixture(scope="module")
def consumer(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bazel]:
    """The consumer's program with left's published library and right's unpublished library."""
    # A separate directory shows which repositories Bazel fetched.
    directory = tmp_path_factory.mktemp("consumer")
    with bazel(directory=directory) as instance:
        key = Path(f"{server.keys}.pub").read_text(encoding="utf-8").splitlines()[1]
        with (instance.workspace / "MODULE.bazel").open("a", encoding="utf-8") as module:
            for side in ("left", "right"):
                module.write(PREBUILT.format(key=key, side=side, url=server.url))
        cache = {"XDG_CACHE_HOME": str(directory / "cache")}
        label = '"@qola_prebuilt_{}//:libmha_fwd"'
        with instance.rewritten("BUILD.bazel", '":{}_libmha_fwd"', label):
            yield replace(instance, environment=cache)


def test_in_bazel(server: Server, consumer: Bazel) -> None:
    """Prevents: Bazel builds published libraries, or a program cannot use them."""
    fetched = consumer.run("build", "@qola_prebuilt_left//:bundle", "//:ask_left")
    assert f"prebuilt {server.key} from {server.url}" in fetched.stderr
    repositories = {path.name for path in (consumer.output_base / "external").iterdir()}
    assert not [name for name in repositories if name.endswith(("~aiter", "+aiter"))]
    (bundle,) = consumer.workspace.glob("bazel-bin/external/*qola_prebuilt_left/bundle")
    assert (bundle / "lib/left_libmha_fwd.so").is_file()
    assert (bundle / "manifest.json").is_file()
    result = consumer.run("run", "//:program")
    assert "no prebuilt right-rocm" in result.stderr
    answers = [line for line in result.stdout.splitlines() if ": " in line]
    # Without a device, both libraries return this status.
    assert [line.split(": ")[1] for line in answers] == ["-3"] * 4


def test_an_unknown_manifest(consumer: Bazel) -> None:
    """Prevents: for a misspelt manifest name, Bazel reports an internal repository name."""
    with consumer.rewritten("MODULE.bazel", 'manifest = "right"', 'manifest = "wrong"'):
        failed = consumer.run("query", "@qola_prebuilt_right//:all", check=False)
    assert "prebuilt libraries of an unknown manifest" in failed.stderr
    assert "a declared manifest: left, right" in failed.stderr


def test_wrong_bytes_in_bazel(server: Server, consumer: Bazel) -> None:
    """Prevents: a program gets a changed bundle, or Bazel silently builds the library instead."""
    right = server.archive.read_bytes()
    shutil.rmtree(consumer.environment["XDG_CACHE_HOME"])
    wrong = bytes([*right[:-1], right[-1] ^ 1])
    server.archive.write_bytes(wrong)
    try:
        # This variable makes Bazel fetch again.
        arguments = ("--nobuild", "--repo_env=QOLA_PREBUILT=yes", "//:ask_left")
        failed = consumer.failure(*arguments)
        assert "PrebuiltError" in failed
        for data in (right, wrong):
            assert hashlib.sha256(data).hexdigest() in failed
        # QOLA_PREBUILT=no builds the library.
        disabled = ("--repo_env=QOLA_PREBUILT=no", "@qola_prebuilt_left//:all")
        assert "//:bundle_tar" in consumer.run("query", *disabled).stdout
        unknown = ("--repo_env=QOLA_PREBUILT=maybe", "@qola_prebuilt_left//:all")
        assert "yes, offline " in consumer.run("query", *unknown, check=False).stderr
    finally:
        server.archive.write_bytes(right)
