"""A bundle published to a real nginx, fetched elsewhere, by qola build and by Bazel."""

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

# Beside this repository, among the files a test is given.
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
        keys: prefix of the pair of keys that signs.
        key: key of the bundle of left.toml.
    """

    directory: Path
    url: str
    keys: Path
    key: str

    @property
    def archive(self) -> Path:
        """The archive as nginx serves it."""
        return self.directory / f"files/team/{self.key}.tar.gz"

    def asked(self) -> str:
        """Return its log."""
        return (self.directory / "access.log").read_text(encoding="utf-8")


def user_of(directory: Path) -> User:
    """Somebody with left.toml in a new directory."""
    directory.mkdir(parents=True)
    shutil.copy(EXAMPLE / "left.toml", directory)
    return User(directory)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An nginx to which the bundle of left.toml was published, signed."""
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
    builder = user_of(directory / "builder")
    builder.qola("keygen", "k")
    url = f"http://127.0.0.1:{port}/team"
    words = ("publish", "-m", "left.toml", "--to", url, "--secret-key", "k.key")
    cache = disk_cache_option()
    with listening(command, port, name="nginx"):
        published = builder.qola(*words, cache)
        key = published.stdout.partition(":")[0]
        again = builder.qola(*words, cache)
        assert again.stdout.startswith(f"{key}: there already, ")
        yield Server(directory, url, builder.directory / "k", key)


def test_built_by_nobody(server: Server, tmp_path: Path) -> None:
    """Prevents: a bundle that needs Bazel where it is fetched, or is not what was built."""
    user = user_of(tmp_path / "user")
    words = ("--prebuilt", server.url, "--public-key", f"{server.keys}.pub")
    built = user.qola("build", "-m", "left.toml", "-o", "out", *words, QOLA_BAZEL="/bin/false")
    assert f"prebuilt {server.key} from {server.url}" in built.stderr
    output = user.directory / "out"
    record = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
    (module,) = record["modules"]
    library = (output / module["library"]).read_bytes()
    assert hashlib.sha256(library).hexdigest() == module["sha256"]
    # What the bundle's own list of files says, which was made where it was built.
    check_sbom(output)


def test_the_rocm_of_this_machine(server: Server) -> None:
    """Prevents: libraries of another compiler under the pinned one's key; a key without a ROCm."""
    words = ("fetch", "-m", "left.toml", "--print-key")
    builder = User(server.keys.parent)
    assert builder.qola(*words).stdout == f"{server.key}\n"
    asked = builder.qola(*words, QOLA_ROCM="/no/such/rocm", code=5)
    assert "no ROCm where it is looked for" in asked.stderr


@pytest.fixture(scope="module")
def consumer(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bazel]:
    """The consumer's program with left's library, which is published, and right's, which is not."""
    # A place of its own, in which one sees what was fetched.
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
    """Prevents: libraries that Bazel builds although they are there, or that no program can use."""
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
    # There is no device here: both libraries say so, as a status.
    assert [line.split(": ")[1] for line in answers] == ["-3"] * 4


def test_an_unknown_manifest(consumer: Bazel) -> None:
    """Prevents: a misspelt name that Bazel explains by a repository nobody has heard of."""
    with consumer.rewritten("MODULE.bazel", 'manifest = "right"', 'manifest = "wrong"'):
        failed = consumer.run("query", "@qola_prebuilt_right//:all", check=False)
    assert "prebuilt libraries of an unknown manifest" in failed.stderr
    assert "a declared manifest: left, right" in failed.stderr


def test_wrong_bytes_in_bazel(server: Server, consumer: Bazel) -> None:
    """Prevents: a bundle that somebody changed, in a program; a build in its stead, in silence."""
    right = server.archive.read_bytes()
    shutil.rmtree(consumer.environment["XDG_CACHE_HOME"])
    wrong = bytes([*right[:-1], right[-1] ^ 1])
    server.archive.write_bytes(wrong)
    try:
        # Which has it looked for once more.
        again = ("--nobuild", "--repo_env=QOLA_PREBUILT=yes", "//:ask_left")
        failed = consumer.run("build", *again, check=False)
        assert failed.returncode != 0
        assert "PrebuiltError" in failed.stderr
        for data in (right, wrong):
            assert hashlib.sha256(data).hexdigest() in failed.stderr
        # Whoever wants to build all the same says so.
        chosen = ("--repo_env=QOLA_PREBUILT=no", "@qola_prebuilt_left//:all")
        assert "//:bundle_tar" in consumer.run("query", *chosen).stdout
        unknown = ("--repo_env=QOLA_PREBUILT=maybe", "@qola_prebuilt_left//:all")
        assert "yes, offline " in consumer.run("query", *unknown, check=False).stderr
    finally:
        server.archive.write_bytes(right)
