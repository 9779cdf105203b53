"""qola fetch and qola build with prebuilt bundles from directories and HTTP servers."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from qola.cli import main
from qola.manifest.load import loads
from qola.plan.spec import Forms
from qola.prebuilt import signature
from qola.prebuilt.archive import pack_bundle
from qola.prebuilt.options import NamedSource, PrebuiltOptions, choose_sources, parse_source
from qola.prebuilt.publish import check_same, publish
from qola.prebuilt.sources import HttpSource, Transport
from qola_base.errors import PrebuiltError, QolaError
from tests.prebuilt.users import LIBRARY, LIBRARY_FILE, MANIFEST, RETRY, SIGNED, User
from tests.servers.http_files import Fault, Files
from tests.setup.cache_rule import give_away
from tests.support.folders import git, read, write

COMMIT = "--aiter-commit=" + "c" * 40
TE_NAME = "rocm-7_aiter-" + "c" * 40


@pytest.mark.parametrize(
    ("command", "summary"),
    [
        ("fetch", "left_libmha_fwd: fetched, "),
        ("fetch", "/published.\n"),
        ("build", "Build complete: 1/1 succeeded, 0 failed."),
    ],
)
def test_from_a_directory(user: User, command: str, summary: str) -> None:
    """Prevents: qola misses or rebuilds a published bundle, or does not record its source."""
    out, err = user.run(command, "published", SIGNED)
    assert f"prebuilt {user.key.text} from {user.published}" in err
    assert "only its digest" not in err
    assert summary in out
    assert (user.output / LIBRARY_FILE).read_bytes() == LIBRARY
    record = json.loads((user.output / "manifest.json").read_text())
    assert record["prebuilt"]["key"] == user.key.text
    assert record["summary"] == {"total": 1, "success": 1, "failed": 0}
    assert record["modules"][0]["so_path"] == str(user.output / LIBRARY_FILE)
    assert record["archs"] == ["gfx950"]
    assert list(read(user.output)) == ["include/qola_config.h", LIBRARY_FILE, "manifest.json"]


def test_static_archive_of_an_earlier_build(user: User) -> None:
    """Prevents: an outdated static archive stays next to new libraries; qola ignores --static."""
    earlier = dict.fromkeys(("lib/libqola_left.a", "lib/cmake/qola/qola-static.cmake"), "1")
    write(user.output, earlier)
    user.fetch("published", "--static", code=9)
    assert read(user.output).keys() == earlier.keys()
    user.fetch("published")
    assert not read(user.output).keys() & earlier.keys()


def test_from_a_server_and_then_from_the_cache(user: User) -> None:
    """Prevents: qola downloads a bundle twice, or contacts servers when offline."""
    server = user.serve()
    log_text = user.fetch(server.url)
    assert (
        f"from {server.url}; only its digest was checked: no public key is configured" in log_text
    )
    request_count = len(server.requests)
    shutil.rmtree(user.output)
    assert "from the cache of downloads" in user.fetch(server.url, "--offline")
    assert len(server.requests) == request_count
    # The cached copy is unsigned, so a public key requires a new request.
    user.fetch(server.url, SIGNED)
    assert len(server.requests) > request_count
    # The cached copy is signed now, so no request is necessary.
    user.fetch(server.url, SIGNED, "--offline")


def test_source_without_the_bundle_after_a_fetch(user: User) -> None:
    """Prevents: the summary names the source or a build although qola used the cache."""
    server = user.serve()
    user.fetch(server.url)
    server.content.clear()
    out, _ = user.run("fetch", server.url)
    cache = user.directory / "cache/qola/prebuilt" / user.key.digest
    last = f"Fetched from the cache of downloads ({cache}), no source was asked.\n"
    assert out.endswith(last)
    assert "Build complete" not in out


def test_offline_without_a_download(user: User) -> None:
    """Prevents: --offline sends requests, or ignores directories."""
    server = user.serve()
    error_text = user.fetch(server.url, "--offline", code=9)
    assert f"{server.url}: not asked: offline" in error_text
    user.fetch(server.url, "published", "--offline")
    assert not server.requests


def test_miss(user: User) -> None:
    """Prevents: a miss omits the key or the sources, or creates an output directory."""
    empty = user.serve({})
    assert f"{empty.url}: not there" in user.fetch(empty.url, code=9)
    # A source that does not respond may have the bundle: another exit code.
    error_text = user.fetch(empty.url, "nowhere", code=12)
    for expected in (user.key.text, f"{empty.url}: not there", "nowhere: no such directory"):
        assert expected in error_text
    assert not user.output.exists()
    assert "no source to ask" in user.fetch(code=9)


def test_mirrors(user: User) -> None:
    """Prevents: a fetch fails with the first mirror, or installs a part of its file."""
    broken, empty, server = user.serve(), user.serve({}), user.serve()
    broken.content[f"/{user.archive}"] = bytes(len(server.content[f"/{user.archive}"]))
    broken.faults[f"/{user.archive}"] = Fault(cut=2000, times=99)
    unreachable = "http://127.0.0.1:9"
    log_text = user.fetch(unreachable, empty.url, broken.url, server.url)
    for expected in (f"{unreachable}: ", "refused", f"{broken.url}: ", f"from {server.url}"):
        assert expected in log_text
    assert empty.paths() == [f"/{user.record}"]
    assert (user.output / LIBRARY_FILE).read_bytes() == LIBRARY
    assert not list((user.directory / "cache").rglob("*.arrived"))


def test_wrong_digest(user: User) -> None:
    """Prevents: qola installs a damaged bundle, or silently uses a mirror or a build instead."""
    server, good = user.serve(), user.serve()
    correct = server.content[f"/{user.archive}"]
    wrong = server.content[f"/{user.archive}"] = bytes([*correct[:-1], correct[-1] ^ 1])
    for run in (user.fetch, user.build):
        error_text = run(server.url, good.url, code=10)
        assert "wrong digest" in error_text
        assert f"{server.url}/{user.archive}" in error_text
        assert all(hashlib.sha256(data).hexdigest() in error_text for data in (correct, wrong))
        assert not user.output.exists()
    assert not good.requests
    # A later fetch does not use the damaged download.
    user.fetch(good.url)


def test_archive_larger_than_recorded(user: User) -> None:
    """Prevents: a server fills the disk."""
    server = user.serve()
    server.content[f"/{user.archive}"] += b"more"
    assert "more than" in user.fetch(server.url, code=10)


def test_unsigned_and_wrongly_signed(user: User) -> None:
    """Prevents: qola installs an unsigned or wrongly signed bundle although a key is configured."""
    server = user.serve()
    valid_signature = server.content.pop(f"/{user.signature}")
    assert "no signature" in user.fetch(server.url, SIGNED, code=10)
    server.content[f"/{user.signature}"] = valid_signature
    server.content[f"/{user.record}"] += b" "
    assert "not of this key and record" in user.fetch(server.url, SIGNED, code=10)
    assert not user.output.exists()
    assert f"/{user.archive}" not in server.paths(), "fetched before it was known who made it"


def test_record_of_another_bundle(user: User) -> None:
    """Prevents: qola installs a signed bundle of another key under this key's name."""
    other = replace(user.key, ruleset="x")
    user.put("other", key=other)
    shutil.copy(user.published / other.record_name, user.published / user.record)
    error_text = user.fetch("published", code=10)
    for expected in (user.record, user.key.digest, other.digest, "qola.ruleset differs"):
        assert expected in error_text


def test_damaged_copy_in_the_cache(user: User) -> None:
    """Prevents: qola uses a damaged cached copy, or every later fetch fails."""
    server = user.serve()
    user.fetch(server.url)
    (copy,) = (user.directory / "cache/qola/prebuilt").glob(f"*/{user.archive}")
    copy.write_bytes(b"damaged")
    error_text = user.fetch(server.url, "--offline", code=10)
    assert hashlib.sha256(b"damaged").hexdigest() in error_text
    assert "the copy in the cache is not used" in user.fetch(server.url)


def test_archive_without_a_library(user: User) -> None:
    """Prevents: the output directory lacks a library of the manifest."""
    (user.directory / "other" / LIBRARY_FILE).unlink()
    user.put("other", overwrite=True)
    assert "no library of libmha_fwd" in user.fetch("published", code=10)
    assert not user.output.exists()


def test_published_twice(user: User) -> None:
    """Prevents: qola uploads an identical bundle again, or overwrites a different one."""
    assert not user.put("bundle"), "the same was written again"
    with pytest.raises(PrebuiltError, match="the same inputs give the same bytes"):
        user.put("other")
    assert user.put("other", overwrite=True)
    assert not user.put("other")


@pytest.mark.parametrize("damage", ["gone", "another", "unsigned"])
def test_publishing_again_repairs(user: User, damage: str) -> None:
    """Prevents: a broken publication that cannot be repaired, or a bundle that stays unsigned."""
    archive = user.published / user.archive
    if damage == "another":
        archive.write_bytes(archive.read_bytes()[::-1])
    else:
        (archive if damage == "gone" else user.published / user.signature).unlink()
    user.fetch("published", SIGNED, code=9 if damage == "gone" else 10)
    assert user.put("bundle", overwrite=damage != "unsigned")
    user.fetch("published", SIGNED)
    assert not user.put("bundle")


def test_published_to_a_server(user: User) -> None:
    """Prevents: a server lists a record before its archive, or an upload cannot be fetched."""
    server, archive = user.serve({}), user.directory / "archive.tar.gz"
    packed_archive = pack_bundle(user.directory / "bundle", archive)
    secret = signature.read_secret_key(user.directory / "k.key", "")
    target = HttpSource(f"{server.url}/team/", Transport("secret", retry=RETRY))
    assert publish(user.key, archive, packed_archive, target, secret, overwrite=False).written
    puts = [request.path for request in server.requests if request.method == "PUT"]
    names = (user.archive, f"{user.archive}.sha256", user.signature, user.record)
    assert puts == [f"/team/{name}" for name in names]
    user.fetch(f"{server.url}/team", SIGNED)
    server.faults[f"/team/{user.archive}"] = Fault(status=403, times=1)
    with pytest.raises(QolaError, match=r"PUT answers 403(?s:.*)fix +QOLA_PREBUILT_TOKEN=<a"):
        publish(user.key, archive, packed_archive, target, secret, overwrite=True)


def test_destination_is_checked_before_the_build(user: User) -> None:
    """Prevents: hours of building for a destination that rejects the upload."""
    user.environ["QOLA_PREBUILT_TOKEN"] = "secret"
    assert "is not published" in user.run("publish", "--to=http://127.0.0.1:9", code=12)[1]
    server = user.serve({user.record: b"{}"})
    user.run("publish", f"--to={server.url}", code=10)
    assert [r.headers.get("Authorization") for r in server.requests] == ["Bearer secret"]
    (user.published / user.record).write_bytes(b"{}")
    user.run("publish", "--to=published", code=10)
    user.run("publish", "--to=published", "--overwrite", code=5)


@pytest.mark.parametrize(
    "setting", ["--prebuilt", "QOLA_PREBUILT_URL", "manifest", "NVTE_AITER_PREBUILT_BASE_URL"]
)
def test_sources_and_their_token(user: User, setting: str) -> None:
    """Prevents: qola ignores a source, or sends the token to a server that a manifest names."""
    server = user.serve()
    user.environ["QOLA_PREBUILT_TOKEN"] = "secret"
    if setting == "manifest":
        public_key = (user.directory / "k.pub").read_text().splitlines()[1]
        user.manifest(f'[prebuilt]\nurls = ["{server.url}"]\npublic_key = "{public_key}"\n')
    elif setting != "--prebuilt":
        user.environ[setting] = server.url
    output = user.build(*([server.url] if setting == "--prebuilt" else []))
    assert (f"/{user.signature}" in server.paths()) == (setting == "manifest")
    trusted = setting in ("--prebuilt", "QOLA_PREBUILT_URL")
    assert {"Authorization" in request.headers for request in server.requests} == {trusted}
    assert (
        output.count(f"{server.url}: the token is not sent there: only --prebuilt") == 1 - trusted
    )
    assert "secret" not in output


def test_miss_starts_a_build(user: User) -> None:
    """Prevents: a miss ends the build, or the output omits the key and the sources."""
    (user.directory / "empty").mkdir()
    log_text = user.build("empty", code=5)
    assert f"no prebuilt {user.key.text}, building" in log_text
    assert "empty: not there" in log_text
    assert "prebuilt" not in user.build("published", "--no-prebuilt", code=5)


def test_manifest_is_read_once(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevents: qola fetches for one manifest and builds another one, saved in the meantime."""
    count_loads = Mock(wraps=loads)
    monkeypatch.setattr("qola.manifest.load.loads", count_loads)
    user.build("nowhere", code=5)
    assert count_loads.call_count == 1


def test_full_bundle_is_used_for_lazy_libraries(user: User) -> None:
    """Prevents: --lazy compiles kernels on each machine although a full bundle is published."""
    log_text = user.build("published", "--lazy")
    assert f"prebuilt {user.key.text} from" in log_text
    assert "no source has lazy libraries, these have their kernels inside" in log_text
    record = json.loads((user.output / "manifest.json").read_text())
    assert record["lazy"] is False
    assert record["prebuilt"]["key"] == user.key.text
    # qola prefers a lazy bundle.
    lazy = replace(user.key, forms=Forms(lazy=True).to_json())
    user.put("other", key=lazy)
    log_text = user.build("published", "--lazy")
    assert f"prebuilt {lazy.text} from" in log_text
    assert "kernels inside" not in log_text
    assert (user.output / LIBRARY_FILE).read_bytes() == b"other"
    assert json.loads((user.output / "manifest.json").read_text())["lazy"] is True


def test_miss_of_lazy_and_full_bundle(user: User) -> None:
    """Prevents: a miss with --lazy names only one of the two keys."""
    (user.directory / "empty").mkdir()
    error_text = user.fetch("empty", "--lazy", code=9)
    lazy = replace(user.key, forms=Forms(lazy=True).to_json())
    assert f"error: {lazy.text}" in error_text
    assert f"empty: full libraries, {user.key.text}: not there" in error_text
    # --static requires a bundle with an archive.
    assert user.key.text not in user.fetch("published", "--static", code=9)


def test_damaged_lazy_bundle_is_an_error(user: User) -> None:
    """Prevents: a damaged or forged lazy bundle stays unnoticed because a full bundle is used."""
    lazy = replace(user.key, forms=Forms(lazy=True).to_json())
    user.put("other", key=lazy)
    (user.published / lazy.archive_name).write_bytes(b"forged")
    user.build("published", "--lazy", code=10)
    assert not user.output.exists()


def test_results_as_json(user: User) -> None:
    """Prevents: stdout of --json contains other text, or differs from the installed record."""
    out, log_text = user.run("fetch", "absent", "--json", code=12)
    error = json.loads(out)["error"]
    assert error["exit_code"] == 12
    assert error["title"] in log_text
    out, log_text = user.run("fetch", "published", "--json")
    found = json.loads(out)
    assert found == json.loads((user.output / "manifest.json").read_text())
    assert found["prebuilt"]["key"] == user.key.text
    assert f"prebuilt {user.key.text} from" in log_text


def test_print_key_and_explain(user: User) -> None:
    """Prevents: a miss cannot be explained, or fetch and publish use different keys."""
    for command in ("fetch", "publish"):
        assert user.run(command, "--print-key")[0] == f"{user.key.text}\n"
    found = json.loads(user.run("fetch", "--explain", "--arch=gfx942")[0])
    assert found["inputs"]["archs"] == ["gfx942"]
    assert found["key"] != user.key.text
    assert main(["fetch", "left.toml"], user.environ, directory=user.directory) == 9


def test_modules_that_python_imports(user: User) -> None:
    """Prevents: qola installs a module that was built for another Python version."""
    user.manifest('[[modules]]\nname = "module_aiter_enum"\nmode = "pybind"\n')
    assert "module_aiter_enum" in user.fetch("published", code=9)
    assert "no prebuilt bundle has module_aiter_enum" in user.build("published", code=5)


def test_bazel_config_disables_prebuilt_bundles(user: User) -> None:
    """Prevents: qola installs a bundle with other settings than the user's Bazel configuration."""
    config_argument = "--bazel-arg=--config=mine"
    reason = "--config=mine, whose meaning lies elsewhere"
    assert reason in user.fetch("published", config_argument, code=9)
    assert f"no prebuilt bundle is looked for: {reason}" in user.build(
        "published", config_argument, code=5
    )
    repo_env_arguments = ("--bazel-arg=--repo_env", "--bazel-arg=QOLA_ROCM=pinned", "--print-key")
    assert user.run("fetch", *repo_env_arguments)[0].strip() == user.key.text


def test_inputs_that_change_while_building(user: User) -> None:
    """Prevents: qola signs new content under the key of the inputs before the build."""
    check_same(user.key, user.key)
    with pytest.raises(QolaError, match="archs changed while it was built"):
        check_same(user.key, replace(user.key, archs=("gfx942",)))


@pytest.mark.parametrize(
    ("options", "environ", "table", "expected"),
    [
        (PrebuiltOptions(urls=("http://o",)), {}, True, ["http://o"]),
        (PrebuiltOptions(), {}, True, ["http://m", "dir"]),
        (PrebuiltOptions(), {}, False, ["http://a", "b c"]),
        (PrebuiltOptions(), {"QOLA_PREBUILT_URL": ""}, False, ["http://t"]),
        (PrebuiltOptions(urls=("http://o",), enabled=False), {}, True, []),
    ],
)
def test_precedence_of_sources(
    options: PrebuiltOptions, environ: dict[str, str], table: bool, expected: list[str]
) -> None:
    """Prevents: a source of the manifest is used in addition to sources of the command line."""
    text = MANIFEST + '[prebuilt]\nurls = ["http://m", "dir"]\n' * table
    variables = {"QOLA_PREBUILT_URL": "http://a  'b c'", "NVTE_AITER_PREBUILT_BASE_URL": "http://t"}
    manifest = loads(text, file="m.toml")
    found = choose_sources(options, manifest, {**variables, **environ}, Path("/folder"))
    assert [source.text for source in found] == expected


@pytest.mark.parametrize("command", ["fetch", "build"])
def test_sources_with_an_unmatched_quote(user: User, command: str) -> None:
    """Prevents: an apostrophe in the name of a directory causes a traceback."""
    user.environ["QOLA_PREBUILT_URL"] = "/srv/it's"
    error_text = user.run(command, code=1)[1]
    assert "Traceback" not in error_text
    assert "/srv/it's" in error_text
    assert "fix       QOLA_PREBUILT_URL=" in error_text


@pytest.mark.parametrize(
    "text",
    [
        *("ftp://x/y", "http://", "http://u:secret@x/", "https://x/?a=1", "http://[x/"),
        *("http://x:99999", "http://u:a?secret@x/", "http://u:a/secret@x/", "~nobody-at-all/x"),
        *("http://u:[secret@x", "https://u:secret@[x/"),
    ],
)
def test_invalid_source_urls(text: str) -> None:
    """Prevents: an error contains a password, or qola accepts a URL with a query."""
    with pytest.raises(QolaError, match="expected  an http, https or file URL") as caught:
        parse_source(NamedSource(text, Path("/"), "--prebuilt"), {})
    assert "secret" not in str(caught.value)


def te_files(name: str, *files: str) -> dict[str, bytes]:
    """Return files as TransformerEngine's upload script writes them: an archive and its digest."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for file in files:
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"\x7fELF"))
    digest = hashlib.sha256(data.getvalue()).hexdigest().encode()
    return {f"{name}.tar.gz": data.getvalue(), f"{name}.tar.gz.sha256": digest + b"\n"}


def te_server(user: User, name: str, *files: str) -> Files:
    """Serve one archive in TransformerEngine's layout."""
    server = user.serve(te_files(name, *files))
    user.environ["NVTE_AITER_PREBUILT_BASE_URL"] = server.url
    return server


@pytest.mark.parametrize("name", [TE_NAME, TE_NAME.replace("7", "7.2")])
def test_transformer_engine_s_layout(user: User, name: str) -> None:
    """Prevents: qola rejects bundles of TransformerEngine's CI, or hides their limits."""
    files = (LIBRARY_FILE, "include/qola_config.h")
    server = te_server(user, name, *files)
    log_text = user.fetch(COMMIT)
    assert "warning" in log_text
    assert "does not cover archs, patches, edits" in log_text
    # qola first requests a bundle of its own layout.
    assert server.paths()[0].endswith(".manifest.json")
    assert all((user.output / file).is_file() for file in files)
    record = json.loads((user.output / "manifest.json").read_text())
    assert record["prebuilt"]["layout"] == "transformer-engine"


def test_transformer_engine_s_layout_for_lazy_libraries(user: User) -> None:
    """Prevents: qola rejects TransformerEngine's bundles when NVTE_CK_JIT is set."""
    te_server(user, TE_NAME, LIBRARY_FILE, "include/qola_config.h")
    user.environ["NVTE_CK_JIT"] = "1"
    assert "these have their kernels inside" in user.fetch(COMMIT)
    assert json.loads((user.output / "manifest.json").read_text())["lazy"] is False


def test_transformer_engine_s_layout_for_a_checkout(user: User) -> None:
    """Prevents: TransformerEngine's submodule of AITER gets no prebuilt bundle."""
    tree = write(user.directory / "aiter", {"aiter/jit/optCompilerConfig.json": "{}"})
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        git(tree, *command)
    te_server(user, f"rocm-7_aiter-{git(tree, 'rev-parse', 'HEAD')}", LIBRARY_FILE)
    for path in (tree, tree / ".git"):
        give_away(path)
    user.fetch(f"--aiter-root={tree}")
    (tree / ".git/HEAD").write_text("ref: refs/heads/none\n")
    assert "not asked for: git rev-parse" in user.fetch(f"--aiter-root={tree}", code=9)
    # A directory inside of another git repository is not a checkout of AITER.
    (tree / ".git").rename(user.directory / ".git")
    user.fetch(f"--aiter-root={tree}", code=9)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((COMMIT, SIGNED), "it is not signed"),
        ((COMMIT, "--static"), "it has full libraries, and nothing else"),
        # The pinned wheel has no commit.
        ((), "no full commit"),
    ],
)
def test_unsupported_uses_of_transformer_engine_s_layout(
    user: User, options: tuple[str, ...], reason: str
) -> None:
    """Prevents: qola installs an archive although another kind of bundle is requested."""
    server = te_server(user, TE_NAME, LIBRARY_FILE)
    assert reason in user.fetch(*options, code=9)
    assert all(path.endswith(".manifest.json") for path in server.paths())


def test_transformer_engine_s_layout_is_verified(user: User) -> None:
    """Prevents: qola installs an archive of another namespace, or a damaged archive."""
    server = te_server(user, TE_NAME, "lib/te_libmha_fwd.so")
    assert "passed over" in user.fetch(COMMIT, code=9)
    server.content[f"/{TE_NAME}.tar.gz.sha256"] = b"0" * 64
    error_text = user.fetch(COMMIT, code=10)
    expected = hashlib.sha256(server.content[f"/{TE_NAME}.tar.gz"]).hexdigest()
    assert all(digest in error_text for digest in ("0" * 64, expected))
    del server.content[f"/{TE_NAME}.tar.gz.sha256"]
    assert "no .sha256 there" in user.fetch(COMMIT, code=9)


def test_transformer_engine_s_layout_is_cached(user: User) -> None:
    """Prevents: each build downloads gigabytes, or an offline machine cannot use its cache."""
    archive, checksum = f"/{TE_NAME}.tar.gz", f"/{TE_NAME}.tar.gz.sha256"
    server = te_server(user, TE_NAME, LIBRARY_FILE)
    error_text = user.fetch(COMMIT, "--offline", code=9)
    assert f"{server.url}{archive}: not asked: offline" in error_text
    assert not server.requests
    for _ in range(2):
        user.fetch(COMMIT)
    assert [server.paths().count(path) for path in (checksum, archive)] == [2, 1]
    request_count = len(server.requests)
    shutil.rmtree(user.output)
    assert "does not cover archs" in user.fetch(COMMIT, "--offline")
    assert len(server.requests) == request_count
    assert (user.output / LIBRARY_FILE).is_file()
    # Another archive under the same name.
    files_with_header = te_files(TE_NAME, LIBRARY_FILE, "include/qola_config.h")
    server.content |= {f"/{name}": data for name, data in files_with_header.items()}
    user.fetch(COMMIT)
    assert (user.output / "include/qola_config.h").is_file()
    (copy,) = (user.directory / "cache/qola/prebuilt").glob(f"*{archive}")
    copy.write_bytes(b"damaged")
    error_text = user.fetch(COMMIT, "--offline", code=10)
    assert hashlib.sha256(b"damaged").hexdigest() in error_text
    user.fetch(COMMIT)
    assert server.paths().count(archive) == 3


def test_offline_signed_bundle_and_unsigned_copy(user: User) -> None:
    """Prevents: an unsigned cached copy hides the signed bundle of a directory."""
    unsigned = shutil.copytree(user.published, user.directory / "unsigned")
    (unsigned / user.signature).unlink()
    user.fetch("unsigned")
    user.fetch("unsigned", SIGNED, "--offline", code=10)
    # A cached copy that must not be used is an error, not a miss.
    user.fetch(SIGNED, "--offline", code=10)
    output = user.fetch("published", SIGNED, "--offline")
    assert "the copy in the cache is not used" in output


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("build", ("publish", "--to=new")), ("query", ("publish", "--to=new", "--print-key"))],
)
def test_bazelrc_files_are_ignored(user: User, command: str, arguments: tuple[str, ...]) -> None:
    """Prevents: settings of a user's or a machine's .bazelrc change a signed bundle."""
    program = user.directory / "bazel"
    text = "import sys; open('{0}/asked', 'w').write(' '.join(sys.argv[1:])); sys.exit(7)"
    program.write_text(f"#!{sys.executable}\n{text.format(user.directory)}\n")
    program.chmod(0o755)
    user.environ["QOLA_BAZEL"] = str(program)
    if command == "query":
        user.environ["QOLA_ROCM"] = "/opt/rocm"
    user.run(*arguments, code=5)
    startup, _, _ = (user.directory / "asked").read_text().partition(f"{command} ")
    assert "--nohome_rc" in startup
    # In bazelw's file system, the system bazelrc names the registry, so qola reads it.
    in_tree = Path("/usr/share/qola/registry").exists()
    assert ("--nosystem_rc" in startup) != in_tree


BAZEL_OUTPUT = """\
INFO: Invocation ID: 7
ERROR: An error occurred during the fetch of repository 'rocm':
   Traceback (most recent call last):
\tFile "/rocm_repository.bzl", line 95, column 13, in _local
\t\tfail(finding(
Error in fail: qola: ToolchainError: no ROCm at the path that was named
  found:   no runnable /no/rocm/bin/hipcc
ERROR: no such package '@@rocm//': and so on
"""


@pytest.mark.parametrize(
    ("bazel_output", "expected"),
    [
        (BAZEL_OUTPUT, "no runnable /no/rocm/bin/hipcc\n"),
        ("bazelw: error: no network\nbazelw: to fix: plug it in\n", "no network\n"),
        ("\udcff\n", "\ufffd\n"),
        ("", "exit code 1, before anything was built\n"),
    ],
)
def test_rocm_that_bazel_does_not_find(user: User, bazel_output: str, expected: str) -> None:
    """Prevents: an invalid QOLA_ROCM prints sixty lines of Bazel's output, or no reason."""
    program, text = user.directory / "bazel", user.directory / "said"
    text.write_text(bazel_output, errors="surrogateescape")
    program.write_text(f"#!/bin/sh\ncat {text} >&2\nexit 1\n")
    program.chmod(0o755)
    user.environ |= {"QOLA_BAZEL": str(program), "QOLA_ROCM": "/no/rocm", "PATH": "/usr/bin:/bin"}
    error = user.fetch("published", code=5).partition("error: ")[2]
    assert error.startswith("QOLA_ROCM, of which Bazel is asked\n")
    assert expected in error
    assert not {"Traceback", "INFO:", "ERROR:"} & {*error.split()}
    assert "QOLA_ROCM=pinned takes the ROCm that qola pins" in error
    program.write_bytes(b"\x7fELF")
    assert f"error: {program}\n  found     Exec format error" in user.fetch("published", code=5)
