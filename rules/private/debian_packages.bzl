"""Pinned Debian packages in repository rules: read a lock, fetch, verify, unpack.

A lock is written by `bazelw --refresh-lock`. Packages come from Bazel's
repository cache, else from the mirrors the user names, else through the
machine's own apt; in each case Bazel verifies the sha256.
"""

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
    """What a group is made of, as text whose digest names it.

    Args:
      packages: as parse_lock returns them.
      group: name of a group.

    Returns:
      "name version sha256" lines.
    """
    return "".join(["{} {} {}\n".format(p.name, p.version, p.sha256) for p in packages if p.group == group])

def cache_directory(environ):
    """Where qola keeps what several repositories share; as bazelw has it.

    Args:
      environ: dict of environment variables.

    Returns:
      An absolute path, or "" when the environment names none.
    """
    if environ.get("QOLA_CACHE_HOME", ""):
        path = environ["QOLA_CACHE_HOME"]
    elif environ.get("XDG_CACHE_HOME", ""):
        path = environ["XDG_CACHE_HOME"] + "/qola"
    elif environ.get("HOME", ""):
        path = environ["HOME"] + "/.cache/qola"
    else:
        path = ""
    return path if path.startswith("/") else ""

def _run(rctx, what, arguments, environment = {}):
    result = rctx.execute(arguments, environment = environment, timeout = 1800)
    if result.return_code != 0:
        fail("""
qola: ToolchainError: pinned Debian packages could not be {what}
  place:    {place}
  found:    {found}
  expected: a complete directory (is the disk full?)
  fix:      free some space and run the same command again""".format(
            what = what,
            place = rctx.path("."),
            found = result.stderr.strip(),
        ))
    return result.stdout

def _refuse(lock, package, found, fix):
    fail("""
qola: ToolchainError: a pinned Debian package cannot be had
  place:    {lock}: {name} {version}
  found:    {found}
  expected: {path} with sha256 {sha256}
  fix:      {fix}""".format(
        fix = fix,
        found = found,
        lock = lock,
        name = package.name,
        path = package.path,
        sha256 = package.sha256,
        version = package.version,
    ))

def _url(mirror, package):
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

def _from_mirrors(rctx, lock, package, file, mirrors, fix):
    """Downloads one package from the mirrors the user named."""
    if _download(rctx, [_url(mirror, package) for mirror in mirrors], package, file):
        return
    found = []
    for mirror in mirrors:
        # Again without a digest, to say what is there instead.
        answer = rctx.download(_url(mirror, package), file + ".refused", allow_fail = True)
        found.append("{}: {}".format(
            mirror,
            "sha256 is " + answer.sha256 if answer.success else "no such file, or no answer",
        ))
    _refuse(lock, package, "\n            ".join(found), fix)

def _from_apt(rctx, lock, package, file, mirrors, fix):
    """Downloads one package by apt, which verifies it, and hands it to Bazel's repository cache."""
    found = []
    for mirror in mirrors:
        result = rctx.execute([
            _APT_HELPER,
            "-q",
            "-o",
            "APT::Sandbox::User=root",
            "download-file",
            _url(mirror, package),
            file + ".apt",
            "SHA256:" + package.sha256,
        ], environment = {"LC_ALL": "C"}, timeout = 1800)
        if result.return_code == 0:
            if not _download(rctx, ["file://" + str(rctx.path(file + ".apt"))], package, file):
                _refuse(lock, package, "a file with another digest, from " + mirror, fix)
            rctx.delete(file + ".apt")
            return
        found += [
            line.strip()
            for line in result.stderr.split("\n")
            if line.strip() and "Download Failed" not in line
        ]
    _refuse(lock, package, "\n            ".join(found) or "no Debian mirror among this machine's apt sources", fix)

def _fetch(rctx, lock, packages, mirrors, mirrors_line, scripts):
    """Downloads packages into the directory debs.

    Returns:
      The paths of the files.
    """
    megabytes = 0
    for package in packages:
        megabytes += package.size
    megabytes = megabytes // 1000000
    fix = "name a mirror of Debian's archive that has it, such as a snapshot: " + mirrors_line
    apt_mirrors = None
    files = []
    for number, package in enumerate(packages):
        rctx.report_progress("package {} of {} ({} MB): {}".format(number + 1, len(packages), megabytes, package.name))
        file = "debs/{}.deb".format(package.name)
        files.append(file)
        if mirrors:
            _from_mirrors(rctx, lock, package, file, mirrors, fix)
        elif not _download(rctx, [], package, file):
            if apt_mirrors == None:
                if not rctx.path(_APT_HELPER).exists:
                    _refuse(lock, package, "no apt on this machine ({}), and no mirror is named".format(_APT_HELPER), fix)
                apt_mirrors = _run(rctx, "found", ["bash", scripts.mirrors]).split("\n")
                apt_mirrors = [m for m in apt_mirrors if m]
            _from_apt(rctx, lock, package, file, apt_mirrors, fix)
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

def fetch_packages(rctx, lock, mirrors, mirrors_line, groups = None):
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
    """
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
        if not store or not rctx.path(store).exists:
            _make_group(rctx, lock, chosen, mirrors, mirrors_line, scripts, group, store)
        if store:
            _run(rctx, "linked", ["sh", "-c", _LINK, "_", store, str(rctx.path(group))])

# Hard links where both are on one file system, else copies. The store's date is that of its last use.
_LINK = """
touch -c "$1"
cp -al -- "$1" "$2" 2>/dev/null || { rm -rf -- "$2"; cp -a -- "$1" "$2"; }
"""

# Another repository may have made the same at the same time: one of them stays. What nobody used for 30 days goes.
_KEEP = """
find "${2%/*}" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf -- {} +
touch -- "$1"
mv -T -- "$1" "$2" 2>/dev/null || { test -d "$2" && rm -rf -- "$1"; }
"""

def _make_group(rctx, lock, packages, mirrors, mirrors_line, scripts, group, store):
    """Fetches and unpacks one group: into the store, or without one into the repository."""
    files = _fetch(rctx, lock, packages, mirrors, mirrors_line, scripts)
    rctx.report_progress("unpacking {} packages".format(len(files)))
    if store:
        partial = _run(rctx, "unpacked", ["mktemp", "-d", store + ".XXXXXX"]).strip()
        _unpack(rctx, scripts.unpack, files, partial + "/" + group)
        _run(rctx, "kept", ["sh", "-c", _KEEP, "_", partial + "/" + group, store])
        rctx.execute(["rm", "-rf", partial])
    else:
        _unpack(rctx, scripts.unpack, files, str(rctx.path(group)))
    rctx.delete("debs")
