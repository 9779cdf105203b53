"""Pinned Debian packages in repository rules: read a lock, fetch, verify, unpack.

A lock is written by `bazelw --refresh-lock`. Packages come from Bazel's
repository cache, else from the mirrors the user names, else through the
machine's own apt; in each case Bazel verifies the sha256.
"""

load("//rules/private:finding.bzl", "finding")

# Part of every Debian and Ubuntu, and of bazelw's private tree. It knows the
# machine's proxies and credentials, and needs no package lists.
_APT_HELPER = "/usr/lib/apt/apt-helper"

_FIELDS = ["name", "version", "sha256", "suite", "size", "path", "group"]

def parse_lock(text):
    """Reads a packages.lock.

    Args:
      text: its content.

    Returns:
      list of struct(name, version, sha256, suite, size (bytes), path (below a
      mirror), group (directory it is unpacked into)), in the file's order.
    """
    packages = []
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        values = line.split(" ")
        if len(values) != len(_FIELDS):
            fail("packages.lock: a line has {} fields, not {}: {}".format(len(values), len(_FIELDS), line))
        fields = dict(zip(_FIELDS, values))
        fields["size"] = int(fields["size"])
        packages.append(struct(**fields))
    return packages

def group_text(packages, group):
    """Returns a line "name version sha256" for each package of a group: the text whose digest names it."""
    return "".join(["{} {} {}\n".format(p.name, p.version, p.sha256) for p in packages if p.group == group])

def cache_directory(environ):
    """Where qola keeps what several repositories share: docs/guide/setup.md#where-things-are-kept.

    Args:
      environ: dict of environment variables.

    Returns:
      An absolute path, or "" when the environment names none.
    """
    for name, below in [("QOLA_CACHE_HOME", ""), ("XDG_CACHE_HOME", "/qola"), ("HOME", "/.cache/qola")]:
        if environ.get(name, "").startswith("/"):
            return environ[name] + below
    return ""

def _run(rctx, what, arguments, environment = {}):
    result = rctx.execute(arguments, environment = environment, timeout = 1800)
    if result.return_code != 0:
        fail(finding(
            "ToolchainError: pinned Debian packages could not be " + what,
            place = rctx.path("."),
            found = result.stderr.strip(),
            expected = "a complete directory (is the disk full?)",
            fix = "free some space and run the same command again",
        ))
    return result.stdout

def _refuse(source, package, found):
    fail(finding(
        "ToolchainError: a pinned Debian package cannot be had",
        place = "{}: {} {}".format(source.lock, package.name, package.version),
        found = found,
        expected = "{} with sha256 {}".format(package.path, package.sha256),
        fix = "name a mirror of Debian's archive that has it, such as a snapshot: " + source.mirrors_line,
    ))

def package_url(mirror, package):
    """Returns the URL of a package of parse_lock at a mirror of Debian's archive, such as http://HOST/debian."""
    return mirror.rstrip("/") + "/" + package.path.replace("~", "%7E").replace("+", "%2B")

def _download(rctx, urls, package, file):
    # With an explicit id the cache answers whatever the URL was.
    return rctx.download(
        urls,
        file,
        sha256 = package.sha256,
        canonical_id = "qola debian " + package.sha256,
        allow_fail = True,
    ).success

def _from_mirrors(rctx, source, package, file):
    """Downloads one package from the mirrors the user named."""
    if _download(rctx, [package_url(mirror, package) for mirror in source.mirrors], package, file):
        return

    # Starlark is not told why; Bazel's own warning has the digest that was found.
    told = "none of these has it (the warnings above say what each answered):"
    _refuse(source, package, "\n".join([told] + source.mirrors))

def _from_apt(rctx, source, package, file, mirrors):
    """Downloads one package by apt, which verifies it, and hands it to Bazel's repository cache."""
    found = []
    for mirror in mirrors:
        result = rctx.execute([
            source.apt_helper,
            "-q",
            "-o",
            "APT::Sandbox::User=root",
            "download-file",
            package_url(mirror, package),
            file + ".apt",
            "SHA256:" + package.sha256,
        ], environment = {"LC_ALL": "C"}, timeout = 1800)
        if result.return_code == 0:
            if not _download(rctx, ["file://" + str(rctx.path(file + ".apt"))], package, file):
                _refuse(source, package, "a file with another digest, from " + mirror)
            rctx.delete(file + ".apt")
            return
        found += [
            line.strip()
            for line in result.stderr.split("\n")
            if line.strip() and "Download Failed" not in line
        ]
    _refuse(source, package, "\n".join(found) or "no Debian mirror among this machine's apt sources")

def _fetch(rctx, source, packages, scripts):
    """Downloads packages into the directory debs.

    Returns:
      The paths of the files.
    """
    megabytes = 0
    for package in packages:
        megabytes += package.size
    megabytes = megabytes // 1000000
    apt_mirrors = None
    files = []
    for number, package in enumerate(packages):
        rctx.report_progress("package {} of {} ({} MB): {}".format(number + 1, len(packages), megabytes, package.name))
        file = "debs/{}.deb".format(package.name)
        files.append(file)
        if source.mirrors:
            _from_mirrors(rctx, source, package, file)
        elif not _download(rctx, [], package, file):
            if apt_mirrors == None:
                if not rctx.path(source.apt_helper).exists:
                    _refuse(source, package, "no apt on this machine ({}), and no mirror is named".format(source.apt_helper))
                apt_mirrors = _run(rctx, "found", ["bash", scripts.mirrors]).split("\n")
                apt_mirrors = [m for m in apt_mirrors if m]
            _from_apt(rctx, source, package, file, apt_mirrors)
    return files

def _unpack(rctx, script, files, directory):
    """Unpacks packages into a new directory."""
    if rctx.which("dpkg-deb"):
        _run(rctx, "unpacked", ["bash", script, directory] + files)
        return
    for file in files:
        rctx.extract(file, output = "parts")
        for part in rctx.path("parts").readdir():
            if part.basename.startswith("data.tar"):
                rctx.extract(part, output = directory)
        rctx.delete("parts")
    _run(rctx, "unpacked", ["bash", script, directory])

def fetch_packages(rctx, lock, mirrors, mirrors_line, groups = None, apt_helper = _APT_HELPER):
    """Unpacks the pinned packages of each group into a directory of the group's name.

    An unpacked group is kept in qola's cache directory under the digest of
    what it is made of, and hard-linked into repositories, so that another
    workspace neither downloads nor unpacks. Its files are read-only.

    Args:
      rctx: the repository context.
      lock: Label of a packages.lock.
      mirrors: URLs of mirrors of Debian's archive (http://HOST/debian); empty:
        the machine's own apt.
      mirrors_line: the line of MODULE.bazel that names a mirror, for errors.
      groups: names of groups; None: all.
      apt_helper: path of apt's program that downloads a file.
    """
    source = struct(apt_helper = apt_helper, lock = lock, mirrors = mirrors, mirrors_line = mirrors_line)
    text = rctx.read(lock)
    packages = parse_lock(text)
    scripts = struct(
        mirrors = rctx.path(Label("//tools/setup:apt_mirrors.sh")),
        unpack = rctx.path(Label("//tools/setup:unpack_packages.sh")),
    )
    rctx.watch(scripts.unpack)
    cache = cache_directory(rctx.os.environ)
    for group in groups or sorted({p.group: None for p in packages}):
        chosen = [p for p in packages if p.group == group]
        rctx.file(group + ".packages", group_text(packages, group), executable = False)
        store = ""
        if cache:
            digest = _run(rctx, "named", ["sh", "-c", "cat \"$@\" | sha256sum", "_", rctx.path(group + ".packages"), scripts.unpack])
            store = "{}/unpacked/{}".format(cache, digest[:16])
            if rctx.execute(["mkdir", "-p", cache + "/unpacked"]).return_code != 0:
                store = ""
        if store and rctx.path(store).exists:
            _run(rctx, "linked", ["sh", "-c", _COPY + _LINK, "_", store, group])
            continue
        files = _fetch(rctx, source, chosen, scripts)
        rctx.report_progress("unpacking {} packages".format(len(files)))
        _unpack(rctx, scripts.unpack, files, group)
        rctx.delete("debs")
        if store:
            _run(rctx, "kept", ["sh", "-c", _COPY + _KEEP, "_", group, store])

# Hard links where both are on one file system, else copies.
_COPY = """
set -eu
copy() { cp -al -- "$1" "$2" 2>/dev/null || { rm -rf -- "$2"; cp -a -- "$1" "$2"; }; }
"""

# The date of what is kept is that of its last use.
_LINK = """
touch -c -- "$1"
copy "$1" "$2"
"""

# Another repository may keep the same at the same time: one of them stays, for both. What nobody used for 30 days
# goes.
_KEEP = """
find "${2%/*}" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf -- {} +
partial=$(mktemp -d "$2.XXXXXX")
copy "$1" "$partial/group"
touch -- "$partial/group"
mv -T -- "$partial/group" "$2" 2>/dev/null || { rm -rf -- "$1"; copy "$2" "$1"; }
rm -rf -- "$partial"
"""
