"""bazelw without network: messages, the choice of a Bazel, and the steps to build a tree."""

from __future__ import annotations

import fcntl
import itertools
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from qola_base.cache import cache_directory
from tests.servers.deb_files import deb
from tests.servers.http_files import Files, serving
from tests.setup.cache_rule import cache_rule, give_away
from tests.setup.machines import EXIT_ENVIRONMENT, ROOT, copy_bazelw, with_functions
from tests.support.folders import read, write
from tests.support.waiting import wait_for

LLVM = (ROOT / "third_party/rocm/llvm_major").read_text().strip()
LOGIN_HOME = pwd.getpwuid(os.getuid()).pw_dir
# A sandbox has no writable home directory, and bazelw would pass --output_user_root to Bazel.
NO_HOME = {"XDG_CACHE_HOME": "relative"}
Run = Callable[..., subprocess.CompletedProcess[str]]

needs_dpkg = pytest.mark.skipif(
    not all(map(shutil.which, ("dpkg-deb", "apt-get"))),
    reason="needs Debian's dpkg-deb and apt-get",
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of the files that bazelw reads, in a directory with a space in its name."""
    root = copy_bazelw(tmp_path / "a workspace")
    shutil.copytree(ROOT / "third_party/debian", root / "third_party/debian")
    return root


def run_at_login(
    command: list[str], home: Path, cwd: Path, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with the environment of a fresh login."""
    return subprocess.run(
        command,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"} | env,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def run(workspace: Path, tmp_path: Path) -> Run:
    """Return a function that runs the workspace's bazelw."""

    def run_bazelw(
        *args: str, wrap: tuple[str, ...] = (), **env: str
    ) -> subprocess.CompletedProcess[str]:
        return run_at_login([*wrap, str(workspace / "bazelw"), *args], tmp_path, tmp_path, **env)

    return run_bazelw


@pytest.fixture
def function(workspace: Path, tmp_path: Path) -> Run:
    """Return a function that runs shell text with the functions of bazelw and manage.sh."""

    def run_text(text: str, cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        return run_at_login(with_functions(workspace, text), tmp_path, cwd)

    return run_text


def program(path: Path, *lines: str) -> Path:
    """Write a shell script, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def test_help_names_every_variable(run: Run) -> None:
    """Prevents: a working setting is missing in the help."""
    result = run("--wrapper-help")
    assert result.returncode == 0
    for name in ("QOLA_BAZEL", "QOLA_CACHE_HOME", "QOLA_DEBIAN_MIRROR", "--doctor", "--uninstall"):
        assert name in result.stdout


def test_override_gets_unchanged_arguments(run: Run) -> None:
    """Prevents: bazelw splits or drops arguments, or reads them as options of bazelw."""
    at_home = {"HOME": LOGIN_HOME} | NO_HOME
    result = run("a b", "--doctor", "", QOLA_BAZEL="/bin/echo", **at_home)
    assert (result.returncode, result.stdout) == (0, "a b --doctor \n")


def test_beside_bazel_runs_a_command(run: Run) -> None:
    """Prevents: --beside-bazel runs another program, or drops arguments."""
    result = run("--beside-bazel", "printf", "%s.", "a b", "", QOLA_BAZEL="/bin/echo")
    assert (result.returncode, result.stdout) == (0, "a b..")
    assert run("--beside-bazel", QOLA_BAZEL="/bin/echo").returncode == 2


def test_the_disk_cache_lies_in_the_cache_directory(run: Run, tmp_path: Path) -> None:
    """Prevents: the disk cache lies outside of the cache directory, or a user cannot change it."""
    elsewhere = {"QOLA_CACHE_HOME": f"{tmp_path}/q q", "XDG_CACHE_HOME": f"{tmp_path}/x"}
    for name, environment in (
        ("q q", elsewhere),
        ("x/qola", elsewhere | {"QOLA_CACHE_HOME": "relative"}),
        ("x/qola", elsewhere | {"QOLA_CACHE_HOME": ""}),
    ):
        rc = tmp_path / name / "disk.bazelrc"
        result = run("build", "//...", QOLA_BAZEL="/bin/echo", **environment)
        assert (result.returncode, result.stdout) == (0, f"--bazelrc={rc} build //...\n")
        assert rc.read_text() == f'common --disk_cache="{tmp_path / name}/disk"\n'
    run("build", QOLA_BAZEL="/bin/echo", QOLA_CACHE_HOME=rf'{tmp_path}/a"b\c')
    line = (tmp_path / r'a"b\c/disk.bazelrc').read_text()
    assert line == rf'common --disk_cache="{tmp_path}/a\"b\\c/disk"' + "\n"
    # In a bazelrc file, the line break would add an option.
    result = run(
        "build", QOLA_BAZEL="/bin/echo", QOLA_CACHE_HOME=f"{tmp_path}/d\ncommon --config=e"
    )
    assert (result.returncode, result.stdout) == (36, "")
    assert "control characters: $'" in result.stderr
    result = run("build", QOLA_BAZEL="/bin/echo", XDG_CACHE_HOME="relative", HOME=LOGIN_HOME)
    assert result.stdout == "build\n"
    # --version must be the first argument of Bazel.
    result = run("--version", QOLA_BAZEL="/bin/echo", **elsewhere)
    assert "bazelrc" not in result.stdout


def test_the_cache_directory(function: Run, tmp_path: Path) -> None:
    """Prevents: bazelw uses another cache directory than rules, Python and lazy libraries."""
    for environ, expected in cache_rule(tmp_path, Path(LOGIN_HOME)):
        variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in environ.items())
        result = function(f'unset HOME; export USER {variables}; settings; printf %s "$CACHE"')
        assert result.stdout == str(expected), (environ, result.stderr)


def test_the_disk_cache_of_another_home(run: Run, tmp_path: Path) -> None:
    """Prevents: with another HOME, `~` in .bazelrc selects the disk cache of passwd's home."""
    assert str(tmp_path) != LOGIN_HOME
    cache = tmp_path / ".cache/qola"
    result = run("build", QOLA_BAZEL="/bin/echo")
    assert result.stdout == f"--bazelrc={cache}/disk.bazelrc build\n"
    assert (cache / "disk.bazelrc").read_text() == f'common --disk_cache="{cache}/disk"\n'
    # Without HOME, the home directory in passwd counts.
    result = run("build", QOLA_BAZEL="/bin/echo", HOME="", **NO_HOME)
    assert result.stdout == "build\n"


def test_a_user_without_a_name(run: Run, function: Run, workspace: Path, tmp_path: Path) -> None:
    """Prevents: under cron, systemd or `docker run -u`, Bazel fails after the whole download."""
    bazel = str(program(tmp_path / "bazel", 'echo "$USER"'))
    result = run("build", QOLA_BAZEL=bazel)
    assert result.stdout == pwd.getpwuid(os.getuid()).pw_name + "\n"
    explicit = run("build", QOLA_BAZEL=bazel, USER="somebody")
    assert explicit.stdout == "somebody\n"
    # passwd has no user with this number, and id fails.
    unknown = function('id() { echo 54321; return 1; }; unset USER; settings; echo "$USER"')
    assert unknown.stdout == f"{os.getuid()}\n"


def test_a_user_without_a_home(run: Run, tmp_path: Path) -> None:
    """Prevents: in a container, Bazel cannot write outputs although the user has set a cache."""
    cache = tmp_path / "q"
    rc = f"--bazelrc={cache}/disk.bazelrc"
    variables = {"QOLA_BAZEL": "/bin/echo", "QOLA_CACHE_HOME": str(cache)}
    result = run("build", HOME="/proc/nobody", **variables)
    assert result.stdout == f"--output_user_root={cache}/bazel {rc} build\n"
    assert (
        run("build", HOME="/proc/nobody", XDG_CACHE_HOME="/x", **variables).stdout
        == f"{rc} build\n"
    )


@pytest.mark.quick(12)
@pytest.mark.parametrize("kind", ["writable", "foreign", "link"])
@pytest.mark.parametrize(
    "path",
    [
        *("", "answers", "answers/{answer}", "disk.bazelrc", "disk", "bazelisk/1.28.1/bazelisk"),
        *("roots", "roots/{tree}", "roots/{tree}/usr/bin/bwrap", "roots/{tree}.partial/debs"),
        "roots/{tree}/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    ],
)
def test_files_of_another_user_are_refused(
    run: Run, function: Run, tmp_path: Path, path: str, kind: str
) -> None:
    """Prevents: bazelw uses a program, answer or option that another user put into the cache."""
    tree, answer = function('name_answer; echo "$DIGEST ${ANSWER##*/}"').stdout.split()
    cache = tmp_path / "shared"
    planted = cache / path.format(tree=tree, answer=answer)
    output = tmp_path / "told"
    for file in (
        "answers/" + answer,
        "disk.bazelrc",
        "disk/ac",
        f"roots/{tree}/usr/bin/bwrap",
        f"roots/{tree}/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        f"roots/{tree}.partial/debs/x",
        "bazelisk/1.28.1/bazelisk",
    ):
        program(cache / file, f"echo planted > {output}")
    (cache / "answers" / answer).write_text(f"path\n{cache}/bazelisk/1.28.1/bazelisk\n")
    calls: list[tuple[tuple[str, ...], dict[str, str]]] = [
        *((("build",), {"QOLA_BAZEL": bazel}) for bazel in ("", "tree", "/bin/echo")),
        *((options, {}) for options in (("--in-tree", "true"), ("--doctor",), ("--uninstall",))),
    ]
    for arguments, environ in calls:
        if kind == "writable":
            planted.chmod(0o777)
        elif kind == "foreign":
            give_away(planted)
        elif not planted.is_symlink():
            # The target is valid, but the owner of the link can redirect it.
            planted.rename(tmp_path / "aside")
            planted.symlink_to(tmp_path / "aside")
            give_away(planted)
        result = run(*arguments, QOLA_CACHE_HOME=str(cache), **environ)
        assert result.returncode == EXIT_ENVIRONMENT, result
        problem = "writable by" if kind == "writable" else "another user's (mode"
        assert f"bazelw: error: {planted} is {problem}" in result.stderr
        assert "bazelw: to fix: QOLA_CACHE_HOME=" in result.stderr
        assert f"chmod go-w {planted}\n" in result.stderr
        assert (result.stdout, output.exists()) == ("", False)


def test_a_cache_below_a_world_writable_directory(run: Run, tmp_path: Path) -> None:
    """Prevents: other users can rename the cache, before or after bazelw creates it."""
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(0o777)
    variables = {"QOLA_BAZEL": "/bin/echo", "QOLA_CACHE_HOME": f"{tmp_path}/all/q"}
    result = run("build", **variables)
    assert f"{tmp_path}/all is writable by everybody (mode 0777" in result.stderr
    assert list((tmp_path / "all").iterdir()) == []
    (tmp_path / "all").chmod(0o1777)
    assert run("build", **variables).returncode == 0
    # bazelw follows a link of the user, and checks the target.
    (tmp_path / "link").symlink_to(tmp_path / "all/q")
    assert run("build", **variables | {"QOLA_CACHE_HOME": f"{tmp_path}/link"}).returncode == 0
    (tmp_path / "all").chmod(0o777)
    assert run("build", **variables | {"QOLA_CACHE_HOME": f"{tmp_path}/link"}).returncode != 0


def test_a_cache_created_under_umask_0(run: Run, tmp_path: Path) -> None:
    """Prevents: bazelw refuses a cache that it created under umask 0."""
    wrap = ("sh", "-c", 'umask 0; exec "$@"', "_")
    for _ in range(2):
        result = run("build", wrap=wrap, QOLA_BAZEL="/bin/echo", QOLA_CACHE_HOME=f"{tmp_path}/q/q")
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "q/q/disk").stat().st_mode & 0o077 == 0


def test_mount_points_under_umask_0(function: Run, tmp_path: Path) -> None:
    """Prevents: other users can add configuration to a directory of the tree."""
    text = (
        f'umask 0; for path in /etc/passwd /usr/bin; do bind_over "{tmp_path}/r" --bind $path; done'
    )
    assert function(f"BINDS=(); {text}").returncode == 0
    created = [tmp_path / "r" / path for path in ("etc", "etc/passwd", "usr/bin")]
    assert [path.stat().st_mode & 0o777 for path in created] == [0o755, 0o644, 0o755]


def test_override_returns_the_exit_code(run: Run) -> None:
    """Prevents: a failed build looks like a successful build."""
    assert run("build", QOLA_BAZEL="/bin/false").returncode == 1


def test_termination_reaches_a_watched_bazel(workspace: Path, tmp_path: Path) -> None:
    """Prevents: a build continues after CI terminates bazelw, before a compiler is fetched."""
    bazel = program(tmp_path / "bazel", "echo $$", "exec sleep 60")
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "QOLA_BAZEL": str(bazel)}
    command = [str(workspace / "bazelw"), "build"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        child = Path("/proc", process.stdout.readline().strip())
        assert child.exists()
        assert child.name != str(process.pid), "bazelw does not watch Bazel"
        process.terminate()
        assert process.wait(timeout=20) == -signal.SIGTERM
        wait_for(lambda: not child.exists())


def test_override_without_a_program(run: Run) -> None:
    """Prevents: a typo in QOLA_BAZEL silently selects another Bazel."""
    result = run("build", QOLA_BAZEL="/no/bazel")
    assert result.returncode == EXIT_ENVIRONMENT
    assert result.stderr == (
        "bazelw: error: QOLA_BAZEL names no program: /no/bazel\n"
        'bazelw: to fix: give the path of a Bazel or Bazelisk, or "tree", or unset QOLA_BAZEL\n'
    )


def test_wrapper_options_take_no_arguments(run: Run) -> None:
    """Prevents: `--uninstall --help` uninstalls."""
    result = run("--uninstall", "--help")
    assert result.returncode == 2
    assert result.stderr.startswith("usage: ./bazelw")


def test_no_lock(run: Run, workspace: Path) -> None:
    """Prevents: bazelw sets up unpinned packages."""
    (workspace / "third_party/debian/packages.lock").unlink()
    result = run("build", QOLA_BAZEL="tree")
    assert result.returncode == EXIT_ENVIRONMENT
    assert "there is no third_party/debian/packages.lock" in result.stderr
    assert result.stderr.endswith("bazelw: to fix: ./bazelw --refresh-lock\n")


def test_cache_that_cannot_be_written(function: Run) -> None:
    """Prevents: a raw mkdir error for a home directory that the user cannot write to."""
    result = function("QOLA_CACHE_HOME=/proc/nowhere; settings; make_tree")
    assert result.returncode == EXIT_ENVIRONMENT
    assert "cannot write to /proc/nowhere" in result.stderr
    assert "set QOLA_CACHE_HOME to a directory of yours" in result.stderr


def test_disk_too_small(function: Run, workspace: Path) -> None:
    """Prevents: the setup fills the disk before it fails."""
    lock = f"# download-megabytes: {10**9}\n# unpacked-megabytes: {10**9}\n"
    write(workspace / "third_party/debian", {"packages.lock": f"{lock}base-files 1 00 forky\n"})
    result = function("make_tree")
    assert result.returncode == EXIT_ENVIRONMENT
    assert "the tree needs 2000000000 MB while it is made" in result.stderr


@needs_dpkg
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take the right to mount away")
def test_no_right_to_make_namespaces(run: Run) -> None:
    """Prevents: a bubblewrap error does not name the missing flag of a container."""
    deny = "echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-sys_admin"
    wrap = ("unshare", "--user", "--map-root-user", "sh", "-c", f'{deny} "$@"', "_")
    result = run("build", wrap=wrap, QOLA_BAZEL="tree")
    assert result.returncode == EXIT_ENVIRONMENT
    assert "this user may not make mount namespaces" in result.stderr
    assert "docker run --cap-add SYS_ADMIN" in result.stderr
    assert "put Bazelisk or Bazel 7.7.1 on PATH" in result.stderr


@needs_dpkg
def test_unpack(function: Run, tmp_path: Path) -> None:
    """Prevents: the tree contains documentation, or a package fails to unpack without an error."""
    base = {"./usr/lib/base": "b", "./usr/share/doc/base/copyright": "c"}
    other = {"./usr/lib/other": "o", "./usr/lib/jvm/x/jmods/j": "j"}
    files = {"base-files_1_all.deb": deb(base), "other_1_all.deb": deb(other)}
    write(tmp_path / "debs", files)
    result = function(f'unpack "{tmp_path}/root"', cwd=tmp_path / "debs")
    assert result.returncode == 0, result.stderr
    root = tmp_path / "root"
    assert list(read(root)) == ["usr/lib/base", "usr/lib/other"]
    (tmp_path / "debs/broken_1_all.deb").write_text("no package")
    result = function(f'unpack "{tmp_path}/root"', cwd=tmp_path / "debs")
    assert result.returncode == EXIT_ENVIRONMENT
    assert "broken_1_all.deb" in result.stderr


def test_only_abandoned_trees_are_removed(function: Run, tmp_path: Path) -> None:
    """Prevents: unfinished trees stay forever, or bazelw removes a tree that is being built."""
    roots = tmp_path / ".cache/qola/roots"
    for name in ("dead", "alive"):
        (roots / f"{name}.partial/root").mkdir(parents=True)
        (roots / f"{name}.lock").touch()
    with (roots / "alive.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = function("remove_dead")
    assert result.returncode == 0, result.stderr
    assert not (roots / "dead.partial").exists()
    assert (roots / "alive.partial").exists()


def test_unused_trees_are_removed(function: Run, tmp_path: Path) -> None:
    """Prevents: each refreshed lock leaves a tree, or bazelw removes a tree that is in use."""
    roots = tmp_path / ".cache/qola/roots"
    for name, days in (("old", 31), ("recent", 29)):
        (roots / name).mkdir(parents=True)
        (roots / f"{name}.lock").touch()
        os.utime(roots / f"{name}.lock", (0, time.time() - days * 24 * 3600))
    result = function("remove_dead")
    assert result.returncode == 0, result.stderr
    assert not (roots / "old").exists()
    assert (roots / "recent").exists()


def test_paths_in_settings_are_visible(function: Run, tmp_path: Path) -> None:
    """Prevents: the tree hides a pip index or certificate below /usr or /etc."""
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        "[global]\nfind-links = /usr/share/wheels\n  file:///usr/share/more\nindex-url=https://h/usr/x\n"
    )
    result = function("PIP_CERT=/etc/own/ca.pem named_paths")
    paths = result.stdout.splitlines()
    assert {"/usr/share/wheels", "/usr/share/more", "/etc/own/ca.pem"} <= set(paths)
    assert not any(path.startswith("/usr/x") for path in paths)


def test_bazelw_on_path_is_not_bazel(function: Run, workspace: Path) -> None:
    """Prevents: an endless recursion if `bazel` on PATH is a link to bazelw."""
    link = workspace / "bazel"
    link.symlink_to(workspace / "bazelw")
    result = function(f'WORKSPACE_LINK="{link}"; usable "$WORKSPACE_LINK" || echo "$WHY_NOT"')
    assert result.stdout == "is this script\n"


def test_another_version_is_not_used(function: Run, tmp_path: Path) -> None:
    """Prevents: bazelw builds with another Bazel than the pinned version."""
    other = program(tmp_path / "bazel", "echo bazel 4.2.3")
    result = function(f'usable "{other}" || echo "$WHY_NOT"')
    assert result.stdout == "is bazel 4.2.3, not bazel 7.7.1, 8 or 9\n"


def test_newer_versions_are_used_and_named(function: Run, tmp_path: Path) -> None:
    """Prevents: a second Bazel beside a newer one, or nobody sees which one builds."""
    for version in ("8.4.2", "9.3.1"):
        program(tmp_path / "bin/bazel", f'[ "$1" != --version ] || echo bazel {version}')
        result = function(f'PATH={tmp_path}/bin:$PATH; REPORT=(); choose_path; echo "$WAY $BAZEL"')
        assert result.stdout == f"path {tmp_path}/bin/bazel\n"
        assert f"is Bazel {version}, and qola's own tests run with 7.7.1" in result.stderr
        assert "QOLA_BAZEL=tree" in result.stderr


def test_a_bazel_that_fails_at_locks(function: Run, workspace: Path, tmp_path: Path) -> None:
    """Prevents: Debian's Bazel, which cannot read MODULE.bazel.lock, crashes."""
    shutil.copytree(ROOT / "third_party/bazel", workspace / "third_party/bazel")
    crash = "echo FATAL: bazel crashed >&2; echo Caused by: Abstract classes >&2; exit 37"
    bazel = program(
        tmp_path / "bazel",
        '[ "$1" != --version ] || exec echo bazel 7.7.1',
        '[ "$1" != mod ] || grep -q lockFileVersion MODULE.bazel.lock || exit 1',
        f'[ "$1" != mod ] || [ -e "{tmp_path}/reads" ] || {{ {crash}; }}',
    )
    usable = f'usable "{bazel}" && echo yes || echo "$WHY_NOT"'
    assert (
        function(usable).stdout == "starts, but resolves no modules: Caused by: Abstract classes\n"
    )
    (tmp_path / "reads").touch()
    assert function(usable).stdout == "yes\n"


def test_a_lock_is_hidden_in_the_tree(function: Run, workspace: Path, tmp_path: Path) -> None:
    """Prevents: the tree's Bazel crashes at a lock that another Bazel wrote."""
    script = f'machine_binds "{tmp_path}/tree"; printf "%s\n" "${{BINDS[@]: -3}}"'
    (tmp_path / "tree/usr/share/qola").mkdir(parents=True)
    assert "MODULE.bazel.lock" not in function(script).stdout
    (workspace / "MODULE.bazel.lock").write_text('{"lockFileVersion": 13}')
    empty = tmp_path / "tree/usr/share/qola/no-lock"
    lines = function(script).stdout.splitlines()
    assert lines == ["--ro-bind", str(empty), f"{workspace}/MODULE.bazel.lock"]
    assert empty.read_bytes() == b""


def test_pythons_of_the_host_are_visible_in_the_tree(function: Run, tmp_path: Path) -> None:
    """Prevents: modules cannot be built for a virtual environment of /usr/bin/python3."""
    tree = tmp_path / "tree"
    (tree / "usr/bin").mkdir(parents=True)
    pythons = [
        p for p in Path("/usr/bin").glob("python3.*") if re.fullmatch(r"python3\.\d+", p.name)
    ]
    assert pythons, "a machine without a Python in /usr"
    library = Path("/usr/lib", pythons[0].name)
    script = f'machine_binds "{tree}"; printf "%s\n" "${{BINDS[@]}}"'
    lines = function(script).stdout.splitlines()
    for path in (pythons[0], library):
        assert ("--ro-bind", str(path)) in itertools.pairwise(lines)
    # A Python of the tree has priority, because the tree's programs need it.
    (tree / "usr/bin" / pythons[0].name).write_text("#!/bin/sh\n")
    lines = function(script).stdout.splitlines()
    assert not {str(pythons[0]), str(library)} & {*lines}


def test_the_central_registry_is_checked(run: Run, workspace: Path, tmp_path: Path) -> None:
    """Prevents: with an installed Bazel, modules of the registry are used without a check."""
    shutil.copytree(ROOT / "third_party/bazel", workspace / "third_party/bazel")
    bazel = program(tmp_path / "bin/bazel", '[ "$1" != --version ] || exec echo bazel 7.7.1')
    lock, pinned = (
        workspace / "MODULE.bazel.lock",
        workspace / "third_party/bazel/MODULE.bazel.lock",
    )
    run("build", QOLA_BAZEL=str(bazel))
    assert not lock.exists()
    path = f"{bazel.parent}:/usr/bin:/bin"
    assert run("build", PATH=path).returncode == 0
    assert lock.read_bytes() == pinned.read_bytes()
    # Additions of Bazel stay until another lock is pinned.
    lock.write_text("more")
    run("build", PATH=path)
    assert lock.read_text() == "more"
    os.utime(pinned, (lock.stat().st_mtime + 9,) * 2)
    run("build", PATH=path)
    assert lock.read_bytes() == pinned.read_bytes()


SHA256 = r"'7\.7\.1 (\w+ \w+)'\) sha256=([0-9a-f]{64}) ;;"


def test_bazelisk_gets_the_digest_of_bazel(function: Run, tmp_path: Path) -> None:
    """Prevents: Bazelisk runs a Bazel from a manipulated server."""
    version = (ROOT / ".bazelversion").read_text().strip()
    known = dict(
        re.findall(SHA256.replace("7\\.7\\.1", re.escape(version)), (ROOT / "bazelw").read_text())
    )
    assert set(known) == {"Linux x86_64", "Linux aarch64", "Darwin x86_64", "Darwin arm64"}
    script = 'pin_download; env | sed -n "s/^BAZELISK_VERIFY_SHA256=//p"'
    assert function(script).stdout.strip() in known.values()
    assert function(f"USE_BAZEL_VERSION=8.4.2; {script}").stdout == ""
    assert function(f"export BAZELISK_VERIFY_SHA256=aa; {script}").stdout == "aa\n"


BAZELISK = next(cache_directory(os.environ).glob("bazelisk/*/bazelisk"), None)


@pytest.mark.skipif(not BAZELISK, reason="needs a Bazelisk that bazelw fetched")
def test_another_bazel_is_refused(function: Run, tmp_path: Path) -> None:
    """Prevents: bazelw runs another file that a mirror serves as the pinned version."""
    (tmp_path / "MODULE.bazel").touch()
    shutil.copy(ROOT / ".bazelversion", tmp_path)
    with serving(Files()) as server:
        version = (ROOT / ".bazelversion").read_text().strip()
        name = f"/{version}/bazel-{version}-linux-x86_64"
        server.content[name] = b"#!/bin/sh\necho bazel 7.7.1\n"
        run = f'export no_proxy=127.0.0.1 BAZELISK_BASE_URL="{server.url}"; "{BAZELISK}" --version'
        result = function(f"pin_download; {run}")
        assert server.paths() == [name]
    assert result.returncode != 0
    assert "bazel 7.7.1\n" not in result.stdout
    assert "sha256" in result.stderr.lower()


def test_bazelisk_that_hangs_is_stopped(function: Run, workspace: Path, tmp_path: Path) -> None:
    """Prevents: minutes without output while Bazelisk retries a server that does not answer."""
    slow = program(tmp_path / "bazelisk", "sleep 60")
    script = (workspace / "bazelw").read_text()
    assert "readonly STALL=8 " in script
    (workspace / "bazelw").write_text(script.replace("readonly STALL=8 ", "readonly STALL=1 "))
    start = time.monotonic()
    result = function(f'while_it_progresses "{slow}" && echo started', cwd=tmp_path)
    assert time.monotonic() - start < 8
    assert "no progress for 1 s" in result.stderr
    assert "started" not in result.stdout


def test_groups_of_a_conf_are_read_separately(
    function: Run, workspace: Path, tmp_path: Path
) -> None:
    """Prevents: a group is resolved with suites or packages of another group."""
    (workspace / "a.conf").write_text(
        "group new\nsuite forky\nsuite experimental lib*\npackage gcc\nleave-out doc\n"
        "group old\nsuite bookworm\nonly libc6\n"
    )
    text = (
        'groups a.conf; for g in new old; do suites=() packages=() alone=(); mkdir -p "$g"; '
        'read_packages_conf a.conf "$g" "$g"; '
        'echo "$g: ${suites[*]} / ${packages[*]} / ${alone[*]}"; done'
    )
    result = function(text)
    assert result.stdout.splitlines() == [
        "new",
        "old",
        "new: forky experimental / gcc / ",
        "old: bookworm /  / libc6",
    ]
    assert "Package: lib*\n" in (tmp_path / "new/preferences").read_text()
    assert "Package: doc\n" in (tmp_path / "new/status").read_text()
    assert not (tmp_path / "old/preferences").exists()
    assert function("read_packages_conf a.conf old x").returncode == 0
    (workspace / "a.conf").write_text("grup new\n")
    result = function("read_packages_conf a.conf all x")
    assert "a.conf: unknown word: grup" in result.stderr


@pytest.mark.parametrize(
    "directory",
    ["third_party/debian", "third_party/rocm", "third_party/rocm_headers", "tests/servers"],
)
def test_every_lock_matches_its_conf(directory: str) -> None:
    """Prevents: a package or group of packages.conf is missing in packages.lock."""
    group, declared = "all", set()
    for line in (ROOT / directory / "packages.conf").read_text().splitlines():
        keyword, _, value = line.partition(" ")
        if keyword == "group":
            group = value
        elif keyword in ("package", "only"):
            declared.add((value.replace("{llvm}", LLVM), group))
    locked = [
        line.split(" ")
        for line in (ROOT / directory / "packages.lock").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert {len(fields) for fields in locked} == {7}
    assert declared <= {(fields[0], fields[6]) for fields in locked}
    assert {fields[6] for fields in locked} == {group for _, group in declared}
