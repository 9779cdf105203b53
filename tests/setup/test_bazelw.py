"""bazelw without network: its messages, its choice of a way, and each step of making a tree."""

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

from qola.cache import cache_directory
from tests.servers.http_files import Files, serving
from tests.setup.cache_rule import cache_rule, give_away
from tests.support.waiting import wait_for

ROOT = Path(__file__).absolute().parents[2]
EXIT_ENVIRONMENT = 36
LLVM = (ROOT / "third_party/rocm/llvm_major").read_text().strip()
LOGIN_HOME = pwd.getpwuid(os.getuid()).pw_dir
# In a sandbox nobody's home can be written to, and bazelw would name Bazel another place.
NO_HOME_NEEDED = {"XDG_CACHE_HOME": "relative"}
Run = Callable[..., subprocess.CompletedProcess[str]]

needs_dpkg = pytest.mark.skipif(
    not all(map(shutil.which, ("dpkg-deb", "apt-get"))),
    reason="needs Debian's dpkg-deb and apt-get",
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of what bazelw reads, in a directory with a space in its name."""
    root = tmp_path / "a workspace"
    (root / "third_party").mkdir(parents=True)
    shutil.copy(ROOT / "bazelw", root)
    shutil.copy(ROOT / ".bazelversion", root)
    shutil.copytree(ROOT / "tools/setup", root / "tools/setup")
    shutil.copytree(ROOT / "third_party/debian", root / "third_party/debian")
    return root


def at_login(
    command: list[str], home: Path, cwd: Path, **env: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command with the environment of a fresh login."""
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
    """Runs the workspace's bazelw."""

    def run_bazelw(
        *args: str, wrap: tuple[str, ...] = (), **env: str
    ) -> subprocess.CompletedProcess[str]:
        return at_login([*wrap, str(workspace / "bazelw"), *args], tmp_path, tmp_path, **env)

    return run_bazelw


@pytest.fixture
def function(workspace: Path, tmp_path: Path) -> Run:
    """Runs shell text that may call the functions of bazelw and tools/setup/manage.sh."""

    def run_text(text: str, cwd: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        script = (workspace / "bazelw").read_text().replace('\nmain "$@"\n', "\n")
        functions = workspace / "functions.sh"
        functions.write_text(script)
        text = f'source "$1"; settings; source "$SETUP/manage.sh"; REPORT=(); {text}'
        return at_login(["bash", "-c", text, "_", str(functions)], tmp_path, cwd)

    return run_text


def _set_lock(workspace: Path, *entries: str, megabytes: int = 1) -> None:
    header = f"# download-megabytes: {megabytes}\n# unpacked-megabytes: {megabytes}\n"
    (workspace / "third_party/debian/packages.lock").write_text(header + "\n".join(entries) + "\n")


def _deb(directory: Path, name: str, version: str, files: dict[str, str]) -> None:
    """Builds a real package."""
    source = directory / "source" / name
    for path, text in files.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text)
    (source / "DEBIAN").mkdir(parents=True)
    (source / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
        "Maintainer: nobody <nobody@example.org>\nDescription: test\n"
    )
    debs = directory / "debs"
    debs.mkdir(exist_ok=True)
    deb = debs / f"{name}_{version.replace(':', '%3a')}_all.deb"
    subprocess.run(["dpkg-deb", "-b", str(source), str(deb)], check=True, capture_output=True)


def test_help_names_every_variable(run: Run) -> None:
    """Prevents a setting that works and that nobody can find."""
    result = run("--wrapper-help")
    assert result.returncode == 0
    for name in ("QOLA_BAZEL", "QOLA_CACHE_HOME", "QOLA_DEBIAN_MIRROR", "--doctor", "--uninstall"):
        assert name in result.stdout


def test_override_gets_the_arguments_as_they_are(run: Run) -> None:
    """Prevents arguments that are split, dropped or taken for the wrapper's own."""
    at_home = {"HOME": LOGIN_HOME} | NO_HOME_NEEDED
    result = run("a b", "--doctor", "", QOLA_BAZEL="/bin/echo", **at_home)
    assert (result.returncode, result.stdout) == (0, "a b --doctor \n")


def test_a_command_beside_bazel(run: Run) -> None:
    """Prevents: a program for the Python beside Bazel that gets another one, or no arguments."""
    result = run("--beside-bazel", "printf", "%s.", "a b", "", QOLA_BAZEL="/bin/echo")
    assert (result.returncode, result.stdout) == (0, "a b..")
    assert run("--beside-bazel", QOLA_BAZEL="/bin/echo").returncode == 2


def test_one_cache(run: Run, tmp_path: Path) -> None:
    """Prevents a disk cache elsewhere than the rest, and one that a user cannot choose any more."""
    elsewhere = {"QOLA_CACHE_HOME": f"{tmp_path}/q q", "XDG_CACHE_HOME": f"{tmp_path}/x"}
    for place, environment in (
        ("q q", elsewhere),
        ("x/qola", elsewhere | {"QOLA_CACHE_HOME": "relative"}),
        ("x/qola", elsewhere | {"QOLA_CACHE_HOME": ""}),
    ):
        rc = tmp_path / place / "disk.bazelrc"
        result = run("build", "//...", QOLA_BAZEL="/bin/echo", **environment)
        assert (result.returncode, result.stdout) == (0, f"--bazelrc={rc} build //...\n")
        assert rc.read_text() == f'common --disk_cache="{tmp_path / place}/disk"\n'
    run("build", QOLA_BAZEL="/bin/echo", QOLA_CACHE_HOME=rf'{tmp_path}/a"b\c')
    line = (tmp_path / r'a"b\c/disk.bazelrc').read_text()
    assert line == rf'common --disk_cache="{tmp_path}/a\"b\\c/disk"' + "\n"
    # In a file of options it would be a line of its own.
    result = run(
        "build", QOLA_BAZEL="/bin/echo", QOLA_CACHE_HOME=f"{tmp_path}/d\ncommon --config=e"
    )
    assert (result.returncode, result.stdout) == (36, "")
    assert "control characters: $'" in result.stderr
    result = run("build", QOLA_BAZEL="/bin/echo", XDG_CACHE_HOME="relative", HOME=LOGIN_HOME)
    assert result.stdout == "build\n"
    # Bazel's own, which no option may come before.
    result = run("--version", QOLA_BAZEL="/bin/echo", **elsewhere)
    assert "bazelrc" not in result.stdout


def test_one_rule(function: Run, tmp_path: Path) -> None:
    """Prevents: a cache elsewhere than rules, Python and lazy libraries have it."""
    for environ, expected in cache_rule(tmp_path, Path(LOGIN_HOME)):
        words = " ".join(f"{name}={shlex.quote(value)}" for name, value in environ.items())
        result = function(f'unset HOME; export USER {words}; settings; printf %s "$CACHE"')
        assert result.stdout == str(expected), (environ, result.stderr)


def test_the_disk_cache_of_another_home(run: Run, tmp_path: Path) -> None:
    """Prevents a HOME of its own whose builds share the disk cache of passwd's: ~ in .bazelrc."""
    assert str(tmp_path) != LOGIN_HOME
    cache = tmp_path / ".cache/qola"
    result = run("build", QOLA_BAZEL="/bin/echo")
    assert result.stdout == f"--bazelrc={cache}/disk.bazelrc build\n"
    assert (cache / "disk.bazelrc").read_text() == f'common --disk_cache="{cache}/disk"\n'
    # Without a HOME it is passwd's.
    result = run("build", QOLA_BAZEL="/bin/echo", HOME="", **NO_HOME_NEEDED)
    assert result.stdout == "build\n"


def test_a_user_without_a_name(run: Run, function: Run, workspace: Path, tmp_path: Path) -> None:
    """Prevents: cron, systemd and `docker run -u`, where Bazel fails after the whole download."""
    (tmp_path / "bazel").write_text('#!/bin/sh\necho "$USER"\n')
    (tmp_path / "bazel").chmod(0o755)
    result = run("build", QOLA_BAZEL=str(tmp_path / "bazel"))
    assert result.stdout == pwd.getpwuid(os.getuid()).pw_name + "\n"
    named = run("build", QOLA_BAZEL=str(tmp_path / "bazel"), USER="somebody")
    assert named.stdout == "somebody\n"
    # In passwd there is nobody of this number, and id says so.
    unknown = function('id() { echo 54321; return 1; }; unset USER; settings; echo "$USER"')
    assert unknown.stdout == f"{os.getuid()}\n"


def test_a_user_without_a_home(run: Run, tmp_path: Path) -> None:
    """Prevents: a container's user who names a cache and whose Bazel cannot write its outputs."""
    cache = tmp_path / "q"
    rc = f"--bazelrc={cache}/disk.bazelrc"
    at = {"QOLA_BAZEL": "/bin/echo", "QOLA_CACHE_HOME": str(cache)}
    result = run("build", HOME="/proc/nobody", **at)
    assert result.stdout == f"--output_user_root={cache}/bazel {rc} build\n"
    assert run("build", HOME="/proc/nobody", XDG_CACHE_HOME="/x", **at).stdout == f"{rc} build\n"


@pytest.mark.quick(12)
@pytest.mark.parametrize("kind", ["writable", "foreign", "link"])
@pytest.mark.parametrize(
    "place",
    [
        *("", "answers", "answers/{answer}", "disk.bazelrc", "disk", "bazelisk/1.28.1/bazelisk"),
        *("roots", "roots/{tree}", "roots/{tree}/usr/bin/bwrap", "roots/{tree}.partial/debs"),
        "roots/{tree}/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    ],
)
def test_what_another_user_planted(
    run: Run, function: Run, tmp_path: Path, place: str, kind: str
) -> None:
    """Prevents: a program, an answer or an option that another user put into a shared cache."""
    tree, answer = function('name_answer; echo "$DIGEST ${ANSWER##*/}"').stdout.split()
    cache = tmp_path / "shared"
    planted = cache / place.format(tree=tree, answer=answer)
    told = tmp_path / "told"
    for file in (
        "answers/" + answer,
        "disk.bazelrc",
        "disk/ac",
        f"roots/{tree}/usr/bin/bwrap",
        f"roots/{tree}/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        f"roots/{tree}.partial/debs/x",
        "bazelisk/1.28.1/bazelisk",
    ):
        (cache / file).parent.mkdir(parents=True, exist_ok=True)
        (cache / file).write_text(f"#!/bin/sh\necho planted > {told}\n")
        (cache / file).chmod(0o755)
    (cache / "answers" / answer).write_text(f"path\n{cache}/bazelisk/1.28.1/bazelisk\n")
    uses: list[tuple[tuple[str, ...], dict[str, str]]] = [
        *((("build",), {"QOLA_BAZEL": bazel}) for bazel in ("", "tree", "/bin/echo")),
        *((words, {}) for words in (("--in-tree", "true"), ("--doctor",), ("--uninstall",))),
    ]
    for arguments, environ in uses:
        if kind == "writable":
            planted.chmod(0o777)
        elif kind == "foreign":
            give_away(planted)
        elif not planted.is_symlink():
            # Where it leads to is good; who made the link can lead it elsewhere.
            planted.rename(tmp_path / "aside")
            planted.symlink_to(tmp_path / "aside")
            give_away(planted)
        result = run(*arguments, QOLA_CACHE_HOME=str(cache), **environ)
        assert result.returncode == EXIT_ENVIRONMENT, result
        what = "writable by" if kind == "writable" else "another user's (mode"
        assert f"bazelw: error: {planted} is {what}" in result.stderr
        assert "bazelw: to fix: QOLA_CACHE_HOME=" in result.stderr
        assert f"chmod go-w {planted}\n" in result.stderr
        assert (result.stdout, told.exists()) == ("", False)


def test_a_cache_below_a_directory_for_all(run: Run, tmp_path: Path) -> None:
    """Prevents: a cache that others can rename away, before or after it is made."""
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(0o777)
    at = {"QOLA_BAZEL": "/bin/echo", "QOLA_CACHE_HOME": f"{tmp_path}/all/q"}
    result = run("build", **at)
    assert f"{tmp_path}/all is writable by everybody (mode 0777" in result.stderr
    assert list((tmp_path / "all").iterdir()) == []
    (tmp_path / "all").chmod(0o1777)
    assert run("build", **at).returncode == 0
    # The user's own link is followed, and where it leads is looked at.
    (tmp_path / "link").symlink_to(tmp_path / "all/q")
    assert run("build", **at | {"QOLA_CACHE_HOME": f"{tmp_path}/link"}).returncode == 0
    (tmp_path / "all").chmod(0o777)
    assert run("build", **at | {"QOLA_CACHE_HOME": f"{tmp_path}/link"}).returncode != 0


def test_a_generous_umask(run: Run, tmp_path: Path) -> None:
    """Prevents: a user whose own cache, made under umask 0, is refused at the second call."""
    wrap = ("sh", "-c", 'umask 0; exec "$@"', "_")
    for _ in range(2):
        result = run("build", wrap=wrap, QOLA_BAZEL="/bin/echo", QOLA_CACHE_HOME=f"{tmp_path}/q/q")
        assert result.returncode == 0, result.stderr
    assert (tmp_path / "q/q/disk").stat().st_mode & 0o077 == 0


def test_mount_points_under_a_generous_umask(function: Run, tmp_path: Path) -> None:
    """Prevents: a directory of the tree in which others can put configuration."""
    text = (
        f'umask 0; for path in /etc/passwd /usr/bin; do bind_over "{tmp_path}/r" --bind $path; done'
    )
    assert function(f"BINDS=(); {text}").returncode == 0
    made = [tmp_path / "r" / path for path in ("etc", "etc/passwd", "usr/bin")]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o755, 0o644, 0o755]


def test_override_passes_the_exit_code_on(run: Run) -> None:
    """Prevents a build that fails and looks as if it had passed."""
    assert run("build", QOLA_BAZEL="/bin/false").returncode == 1


def test_termination_reaches_a_bazel_that_is_watched(workspace: Path, tmp_path: Path) -> None:
    """Prevents: a build that goes on after CI ended bazelw, before a compiler was ever fetched."""
    bazel = tmp_path / "bazel"
    bazel.write_text("#!/bin/sh\necho $$\nexec sleep 60\n")
    bazel.chmod(0o755)
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "QOLA_BAZEL": str(bazel)}
    command = [str(workspace / "bazelw"), "build"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        child = Path("/proc", process.stdout.readline().strip())
        assert child.exists()
        assert child.name != str(process.pid), "nobody watches"
        process.terminate()
        assert process.wait(timeout=20) == -signal.SIGTERM
        wait_for(lambda: not child.exists())


def test_override_that_is_no_program(run: Run) -> None:
    """Prevents a typo in QOLA_BAZEL from silently choosing another Bazel."""
    result = run("build", QOLA_BAZEL="/no/bazel")
    assert result.returncode == EXIT_ENVIRONMENT
    assert result.stderr == (
        "bazelw: error: QOLA_BAZEL names no program: /no/bazel\n"
        'bazelw: to fix: give the path of a Bazel or Bazelisk, or "tree", or unset QOLA_BAZEL\n'
    )


def test_wrapper_options_take_no_arguments(run: Run) -> None:
    """Prevents `--uninstall --help` from uninstalling."""
    result = run("--uninstall", "--help")
    assert result.returncode == 2
    assert result.stderr.startswith("usage: ./bazelw")


def test_no_lock(run: Run, workspace: Path) -> None:
    """Prevents a set-up of unpinned packages."""
    (workspace / "third_party/debian/packages.lock").unlink()
    result = run("build", QOLA_BAZEL="tree")
    assert result.returncode == EXIT_ENVIRONMENT
    assert "there is no third_party/debian/packages.lock" in result.stderr
    assert result.stderr.endswith("bazelw: to fix: ./bazelw --refresh-lock\n")


def test_cache_that_cannot_be_written(function: Run) -> None:
    """Prevents a raw mkdir message for a home directory that is not the user's."""
    result = function("QOLA_CACHE_HOME=/proc/nowhere; settings; make_tree")
    assert result.returncode == EXIT_ENVIRONMENT
    assert "cannot write to /proc/nowhere" in result.stderr
    assert "set QOLA_CACHE_HOME to a directory of yours" in result.stderr


def test_disk_too_small(function: Run, workspace: Path) -> None:
    """Prevents a set-up that fills the disk before it fails."""
    _set_lock(workspace, "base-files 1 00 forky", megabytes=10**9)
    result = function("make_tree")
    assert result.returncode == EXIT_ENVIRONMENT
    assert "the tree needs 2000000000 MB while it is made" in result.stderr


@needs_dpkg
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take the right to mount away")
def test_no_right_to_make_namespaces(run: Run) -> None:
    """Prevents a bubblewrap message where a container needs a flag."""
    deny = "echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-sys_admin"
    wrap = ("unshare", "--user", "--map-root-user", "sh", "-c", f'{deny} "$@"', "_")
    result = run("build", wrap=wrap, QOLA_BAZEL="tree")
    assert result.returncode == EXIT_ENVIRONMENT
    assert "this user may not make mount namespaces" in result.stderr
    assert "docker run --cap-add SYS_ADMIN" in result.stderr
    assert "put Bazelisk or Bazel 7.7.1 on PATH" in result.stderr


@needs_dpkg
def test_unpack(function: Run, tmp_path: Path) -> None:
    """Prevents documentation in the tree, and a package that fails to unpack unnoticed."""
    _deb(tmp_path, "base-files", "1", {"usr/lib/base": "b", "usr/share/doc/base/copyright": "c"})
    _deb(tmp_path, "other", "1", {"usr/lib/other": "o", "usr/lib/jvm/x/jmods/j": "j"})
    result = function(f'unpack "{tmp_path}/root"', cwd=tmp_path / "debs")
    assert result.returncode == 0, result.stderr
    root = tmp_path / "root"
    files = sorted(str(f.relative_to(root)) for f in root.rglob("*") if f.is_file())
    assert files == ["usr/lib/base", "usr/lib/other"]
    (tmp_path / "debs/broken_1_all.deb").write_text("no package")
    result = function(f'unpack "{tmp_path}/root"', cwd=tmp_path / "debs")
    assert result.returncode == EXIT_ENVIRONMENT
    assert "broken_1_all.deb" in result.stderr


def test_only_dead_set_ups_are_removed(function: Run, tmp_path: Path) -> None:
    """Prevents half trees that stay for ever, and removing one that is being made."""
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


def test_trees_out_of_use_are_removed(function: Run, tmp_path: Path) -> None:
    """Prevents a tree per refreshed lock, for ever, and removing one that is in use."""
    roots = tmp_path / ".cache/qola/roots"
    for name, days in (("old", 31), ("recent", 29)):
        (roots / name).mkdir(parents=True)
        (roots / f"{name}.lock").touch()
        os.utime(roots / f"{name}.lock", (0, time.time() - days * 24 * 3600))
    result = function("remove_dead")
    assert result.returncode == 0, result.stderr
    assert not (roots / "old").exists()
    assert (roots / "recent").exists()


def test_settings_name_paths_that_must_show(function: Run, tmp_path: Path) -> None:
    """Prevents a pip index or certificate below /usr or /etc that is invisible in the tree."""
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        "[global]\nfind-links = /usr/share/wheels\n  file:///usr/share/more\nindex-url=https://h/usr/x\n"
    )
    result = function("PIP_CERT=/etc/own/ca.pem named_paths")
    found = result.stdout.splitlines()
    assert {"/usr/share/wheels", "/usr/share/more", "/etc/own/ca.pem"} <= set(found)
    assert not any(path.startswith("/usr/x") for path in found)


def test_this_script_on_path_is_not_taken_for_bazel(function: Run, workspace: Path) -> None:
    """Prevents an endless chain when `bazel` on PATH is a link to bazelw."""
    link = workspace / "bazel"
    link.symlink_to(workspace / "bazelw")
    result = function(f'WORKSPACE_LINK="{link}"; usable "$WORKSPACE_LINK" || echo "$WHY_NOT"')
    assert result.stdout == "is this script\n"


def test_another_version_is_not_used(function: Run, tmp_path: Path) -> None:
    """Prevents building with a Bazel that is not the pinned one."""
    other = tmp_path / "bazel"
    other.write_text("#!/bin/sh\necho bazel 4.2.3\n")
    other.chmod(0o755)
    result = function(f'usable "{other}" || echo "$WHY_NOT"')
    assert result.stdout == "is bazel 4.2.3, not bazel 7.7.1\n"


def test_a_bazel_that_fails_at_locks(function: Run, workspace: Path, tmp_path: Path) -> None:
    """Prevents: a crash of Debian's own Bazel, which cannot read MODULE.bazel.lock."""
    shutil.copytree(ROOT / "third_party/bazel", workspace / "third_party/bazel")
    bazel = tmp_path / "bazel"
    crash = "echo FATAL: bazel crashed >&2; echo Caused by: Abstract classes >&2; exit 37"
    bazel.write_text(
        f'#!/bin/sh\n[ "$1" != --version ] || exec echo bazel 7.7.1\n'
        f'[ "$1" != mod ] || grep -q lockFileVersion MODULE.bazel.lock || exit 1\n'
        f'[ "$1" != mod ] || [ -e "{tmp_path}/reads" ] || {{ {crash}; }}\n'
    )
    bazel.chmod(0o755)
    usable = f'usable "{bazel}" && echo yes || echo "$WHY_NOT"'
    assert (
        function(usable).stdout == "starts, but resolves no modules: Caused by: Abstract classes\n"
    )
    (tmp_path / "reads").touch()
    assert function(usable).stdout == "yes\n"


def test_a_lock_is_hidden_in_the_tree(function: Run, workspace: Path, tmp_path: Path) -> None:
    """Prevents: a crash of the tree's Bazel at the lock that another Bazel left."""
    hidden = f'machine_binds "{tmp_path}/tree"; printf "%s\n" "${{BINDS[@]: -3}}"'
    (tmp_path / "tree/usr/share/qola").mkdir(parents=True)
    assert "MODULE.bazel.lock" not in function(hidden).stdout
    (workspace / "MODULE.bazel.lock").write_text('{"lockFileVersion": 13}')
    empty = tmp_path / "tree/usr/share/qola/no-lock"
    lines = function(hidden).stdout.splitlines()
    assert lines == ["--ro-bind", str(empty), f"{workspace}/MODULE.bazel.lock"]
    assert empty.read_bytes() == b""


def test_the_machines_pythons_show_in_the_tree(function: Run, tmp_path: Path) -> None:
    """Prevents: no module built for a virtual environment of /usr/bin/python3."""
    tree = tmp_path / "tree"
    (tree / "usr/bin").mkdir(parents=True)
    found = [p for p in Path("/usr/bin").glob("python3.*") if re.fullmatch(r"python3\.\d+", p.name)]
    assert found, "a machine without a Python in /usr"
    library = Path("/usr/lib", found[0].name)
    bound = f'machine_binds "{tree}"; printf "%s\n" "${{BINDS[@]}}"'
    lines = function(bound).stdout.splitlines()
    for path in (found[0], library):
        assert ("--ro-bind", str(path)) in itertools.pairwise(lines)
    # The tree's own wins: its programs are made for each other.
    (tree / "usr/bin" / found[0].name).write_text("#!/bin/sh\n")
    lines = function(bound).stdout.splitlines()
    assert not {str(found[0]), str(library)} & {*lines}


def test_the_central_registry_is_checked(run: Run, workspace: Path, tmp_path: Path) -> None:
    """Prevents: modules of whatever the registry serves, where bazelw finds a Bazel for it."""
    shutil.copytree(ROOT / "third_party/bazel", workspace / "third_party/bazel")
    (tmp_path / "bin").mkdir()
    bazel = tmp_path / "bin/bazel"
    bazel.write_text('#!/bin/sh\n[ "$1" != --version ] || exec echo bazel 7.7.1\n')
    bazel.chmod(0o755)
    lock, pinned = (
        workspace / "MODULE.bazel.lock",
        workspace / "third_party/bazel/MODULE.bazel.lock",
    )
    run("build", QOLA_BAZEL=str(bazel))
    assert not lock.exists()
    path = f"{bazel.parent}:/usr/bin:/bin"
    assert run("build", PATH=path).returncode == 0
    assert lock.read_bytes() == pinned.read_bytes()
    # What Bazel adds stays until another one is pinned.
    lock.write_text("more")
    run("build", PATH=path)
    assert lock.read_text() == "more"
    os.utime(pinned, (lock.stat().st_mtime + 9,) * 2)
    run("build", PATH=path)
    assert lock.read_bytes() == pinned.read_bytes()


SHA256 = r"'7\.7\.1 (\w+ \w+)'\) sha256=([0-9a-f]{64}) ;;"


def test_bazelisk_verifies_what_it_downloads(function: Run, tmp_path: Path) -> None:
    """Prevents: a Bazel from whoever stands in for its site, on machines that have Bazelisk."""
    version = (ROOT / ".bazelversion").read_text().strip()
    known = dict(
        re.findall(SHA256.replace("7\\.7\\.1", re.escape(version)), (ROOT / "bazelw").read_text())
    )
    assert set(known) == {"Linux x86_64", "Linux aarch64", "Darwin x86_64", "Darwin arm64"}
    told = 'pin_download; env | sed -n "s/^BAZELISK_VERIFY_SHA256=//p"'
    assert function(told).stdout.strip() in known.values()
    assert function(f"USE_BAZEL_VERSION=8.4.2; {told}").stdout == ""
    assert function(f"export BAZELISK_VERIFY_SHA256=aa; {told}").stdout == "aa\n"


BAZELISK = next(cache_directory(os.environ).glob("bazelisk/*/bazelisk"), None)


@pytest.mark.skipif(not BAZELISK, reason="needs a Bazelisk that bazelw fetched")
def test_another_bazel_is_refused(function: Run, tmp_path: Path) -> None:
    """Prevents: running what a mirror of Bazel's has under the pinned version's name."""
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


def test_bazelisk_that_hangs_falls_through(function: Run, workspace: Path, tmp_path: Path) -> None:
    """Prevents minutes of silence while Bazelisk retries a site that does not answer."""
    slow = tmp_path / "bazelisk"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    script = (workspace / "bazelw").read_text()
    assert "readonly STALL=8 " in script
    (workspace / "bazelw").write_text(script.replace("readonly STALL=8 ", "readonly STALL=1 "))
    start = time.monotonic()
    result = function(f'while_it_progresses "{slow}" && echo started', cwd=tmp_path)
    assert time.monotonic() - start < 8
    assert "no progress for 1 s" in result.stderr
    assert "started" not in result.stdout


def test_groups_of_a_conf_are_read_apart(function: Run, workspace: Path, tmp_path: Path) -> None:
    """Prevents a group that is resolved with the suites or the packages of another one."""
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
def test_every_lock_is_of_its_conf(directory: str) -> None:
    """Prevents a package that was added to a conf, or moved to another group, and never locked."""
    group, wanted = "all", set()
    for line in (ROOT / directory / "packages.conf").read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "group":
            group = rest
        elif word in ("package", "only"):
            wanted.add((rest.replace("{llvm}", LLVM), group))
    locked = [
        line.split(" ")
        for line in (ROOT / directory / "packages.lock").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert {len(fields) for fields in locked} == {7}
    assert wanted <= {(fields[0], fields[6]) for fields in locked}
    assert {fields[6] for fields in locked} == {group for _, group in wanted}
