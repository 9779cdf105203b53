"""Pinned Debian packages in repository rules: read a lock, fetch, verify, unpack.

A lock is written by `bazelw --refresh-lock`. Packages come from Bazel's
repository cache, else from the mirrors the user names, else through the
machine's own apt where its sources are Debian's, else from the public archive
of all that Debian ever published, as of the lock's time; in each case Bazel
verifies the sha256.
"""

load("//lib:finding.bzl", "finding")
load(":progress.bzl", "report_step")

# Part of every Debian and Ubuntu, and of bazelw's private tree. It knows the
# machine's proxies and credentials, and needs no package lists.
_APT_HELPER = "/usr/lib/apt/apt-helper"

# What that archive is called by; below it, a time.
_SNAPSHOT = "https://snapshot.debian.org/archive/debian"

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

def cache_directory(environ, login_home):
    """Finds the directory of files that repositories share: docs/guide/setup.md#where-things-are-kept.

    Args:
      environ: dict of environment variables.
      login_home: the home in passwd, for an environment without one.

    Returns:
      An absolute path.
    """
    for name, below in [("QOLA_CACHE_HOME", ""), ("XDG_CACHE_HOME", "/qola"), ("HOME", "/.cache/qola")]:
        if environ.get(name, "").startswith("/"):
            return environ[name] + below
    return login_home.rstrip("/") + "/.cache/qola"

def _cache_directory(rctx):
    home = rctx.execute(["bash", "-c", "unset HOME && echo ~"]).stdout.strip()
    return cache_directory(rctx.os.environ, home)

def _shared_directory(rctx, cache):
    """Makes the directory of what is unpacked; returns its path, "" where it cannot be or is not only this user's."""
    directory = cache + "/unpacked"
    if rctx.execute(["sh", "-c", "umask 077 && mkdir -p -- \"$1\"", "_", directory]).return_code != 0:
        return ""
    return "" if _distrusted(rctx, [cache, directory]) else directory

def _distrusted(rctx, paths):
    """Returns whether another user may own or write some of the paths, and prints a warning if so."""
    result = rctx.execute(["bash", rctx.path(Label("//tools/setup:ownership.sh"))] + paths)
    if result.return_code != 0:
        # buildifier: disable=print
        print("\n{}: packages are not shared through it; QOLA_CACHE_HOME names another place".format(
            (result.stdout or result.stderr).strip(),
        ))
    return result.return_code != 0

def _run(rctx, what, arguments, environment = {}, output = "stdout", working_directory = ""):
    result = rctx.execute(arguments, environment = environment, timeout = 1800, working_directory = working_directory)
    if result.return_code != 0:
        fail(finding(
            "ToolchainError: pinned Debian packages could not be " + what,
            place = rctx.path("."),
            found = result.stderr.strip(),
            expected = "a complete directory (is the disk full?)",
            fix = "free some space and run the same command again",
        ))
    return getattr(result, output)

def lock_time(text):
    """The time at which all packages of a lock coexist.

    Args:
      text: its content.

    Returns:
      The time, as 20261030T140801Z; "" in a lock without one.
    """
    for line in text.split("\n"):
        if line.startswith("# snapshot: "):
            return line.removeprefix("# snapshot: ")
    return ""

def readable_time(time):
    """Returns a lock's time as people read it, 2026-10-30 14:08 UTC."""
    if not time:
        return "an unknown time"
    return "{}-{}-{} {}:{} UTC".format(time[:4], time[4:6], time[6:8], time[9:11], time[11:13])

def offered_directory(cache, package, time):
    """Returns bazelw's directory of replacements for a lock whose packages no mirror has any more.

    Args:
      cache: the cache directory.
      package: the package of the lock's label, such as third_party/rocm.
      time: lock_time of that lock.

    Returns:
      An absolute path, whether it is there or not.
    """
    return "{}/offered/{}-{}".format(cache, package.replace("/", "-"), time or "none")

def read_pins(rctx, lock):
    """Reads a lock, or the newer lock that bazelw --refresh-lock offers in its place, and watches both.

    Args:
      rctx: the repository context.
      lock: Label of a packages.lock.

    Returns:
      struct(cache (the cache directory), place (offered_directory), offered
      (whether the lock in `place` is in use), text (of the lock in use)).
    """
    text = rctx.read(lock)
    cache = _cache_directory(rctx)
    place = offered_directory(cache, lock.package, lock_time(text))
    rctx.watch(place + "/packages.lock")
    offered = rctx.path(place + "/packages.lock").exists and not _distrusted(rctx, [cache, place])
    return struct(
        cache = cache,
        offered = offered,
        place = place,
        text = rctx.read(place + "/packages.lock") if offered else text,
    )

def package_url(mirror, package):
    """Returns the URL of a package of parse_lock at a mirror of Debian's archive, such as http://HOST/debian."""
    return mirror.rstrip("/") + "/" + package.path.replace("~", "%7E").replace("+", "%2B")

def _download(rctx, packages, urls):
    """Downloads packages at once, into debs/, from the first of a package's URLs that has it.

    Returns:
      Those that no URL had.
    """
    pending = []
    for package in packages:
        pending.append(rctx.download(
            urls(package),
            _file(package),
            allow_fail = True,
            block = False,
            # With an explicit id the cache answers whatever the URL was.
            canonical_id = "qola debian " + package.sha256,
            sha256 = package.sha256,
        ))
    return [package for package, token in zip(packages, pending) if not token.wait().success]

def _base_name(package):
    return package.path.split("/")[-1]

def _file(package):
    return "debs/" + _base_name(package)

def _from_apt(rctx, source, packages):
    """Downloads packages by apt, and hands them to Bazel's repository cache, which verifies them.

    Returns:
      Those that apt did not get.
    """
    lines = ["{} {} {} {} {} {} {}\n".format(*[getattr(p, field) for field in _FIELDS]) for p in packages]
    rctx.file("apt/packages.lock", "".join(lines), executable = False)
    said = _run(
        rctx,
        "fetched",
        ["bash", source.script, rctx.path("apt/packages.lock")],
        environment = {"APT_HELPER": source.apt_helper},
        working_directory = "apt",
        output = "stderr",
    )
    here = [p for p in packages if rctx.path("apt/" + _base_name(p)).exists]
    missing = [p for p in packages if p not in here]
    missing += _download(rctx, here, lambda p: ["file://{}".format(rctx.path("apt/" + _base_name(p)))])
    rctx.delete("apt")
    if missing:
        # buildifier: disable=print
        print("\nqola: apt, for the pinned Debian packages:\n" + said)
    return missing

def _from_snapshot(rctx, base, packages):
    """Downloads packages from the archive of all states; where it has neither of the first two, these alone.

    Each costs a minute where a firewall lets nothing through and nothing back.

    Returns:
      Those that it did not have, and a word about it.
    """
    missing = _download(rctx, packages[:2], lambda p: [package_url(base, p)])
    if len(missing) == 2 and len(packages) > 2:
        return packages, " (had neither of two, the others were not asked for)"
    return missing + _download(rctx, packages[2:], lambda p: [package_url(base, p)]), ""

def _fetch(rctx, source, packages):
    """Downloads packages into the directory debs.

    Returns:
      The paths of the files.
    """
    megabytes = 0
    for package in packages:
        megabytes += package.size
    report_step(rctx, "fetching {} Debian packages ({} MB) of {}".format(len(packages), megabytes // 1000000, source.lock))
    asked = list(source.mirrors)
    missing = _download(rctx, packages, lambda p: [package_url(mirror, p) for mirror in source.mirrors])
    if missing and rctx.path(source.apt_helper).exists:
        report_step(rctx, "fetching {} packages from this machine's Debian mirror".format(len(missing)))
        asked.append("this machine's apt")
        missing = _from_apt(rctx, source, missing)
    if missing and source.time:
        base = source.snapshot + "/" + source.time
        report_step(rctx, "fetching {} packages from {}".format(len(missing), base))
        missing, word = _from_snapshot(rctx, base, missing)
        asked.append(base + word)
    if missing:
        _refuse(rctx, source, packages, missing, asked)
    return [_file(package) for package in packages]

def _refuse(rctx, source, packages, missing, asked):
    """Names all packages that nobody has; bazelw, which may run this, resolves anew then."""
    _mark(rctx, source.place, "wanted", "fetched")
    fail(finding(
        "ToolchainError: pinned Debian packages cannot be had",
        place = "{}, as of {}".format(source.lock, readable_time(source.time)),
        found = "\n".join(
            ["nobody has {} of {} (the warnings above say what each answered):".format(len(missing), len(packages))] +
            ["{} {}, {}, sha256 {}".format(p.name, p.version, p.path, p.sha256) for p in missing] +
            ["asked:"] + (["  " + who for who in asked] or ["  nobody"]),
        ),
        expected = "a mirror of Debian's archive that has them",
        fix = "{} names one, as does QOLA_DEBIAN_MIRROR; ./bazelw resolves what Debian's suites offer now".format(source.mirrors_line),
    ))

def _mark(rctx, place, name, other):
    """Tells bazelw how fetching went, by an empty file that replaces the other one."""
    rctx.execute(["sh", "-c", "umask 077 && mkdir -p \"$1\" && rm -f \"$1/$3\" && : >\"$1/$2\"", "_", place, name, other])

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

def fetch_packages(rctx, lock, mirrors, mirrors_line, groups = None, apt_helper = _APT_HELPER, snapshot = _SNAPSHOT):
    """Unpacks the pinned packages of each group into a directory of the group's name.

    An unpacked group is kept in qola's cache directory under the digest of
    what it is made of, and hard-linked into repositories, so that another
    workspace neither downloads nor unpacks. Its files are read-only.

    Args:
      rctx: the repository context.
      lock: Label of a packages.lock.
      mirrors: URLs of mirrors of Debian's archive (http://HOST/debian) to ask
        first; QOLA_DEBIAN_MIRROR comes after them.
      mirrors_line: the line of MODULE.bazel that names a mirror, for errors.
      groups: names of groups; None: all.
      apt_helper: path of apt's program that downloads a file.
      snapshot: where Debian's archive is, in all its states.

    Returns:
      The pins, as read_pins returns them.
    """
    pins = read_pins(rctx, lock)
    if pins.offered:
        # buildifier: disable=print
        print("\nqola: NOT the packages that {} pins, which were nowhere, but those of {}/packages.lock".format(lock, pins.place))
    named = rctx.os.environ.get("QOLA_DEBIAN_MIRROR", "")
    source = struct(
        apt_helper = apt_helper,
        lock = lock,
        mirrors = mirrors + ([named] if named else []),
        mirrors_line = mirrors_line,
        place = pins.place,
        script = rctx.path(Label("//tools/setup:fetch_packages.sh")),
        snapshot = snapshot,
        time = lock_time(pins.text),
    )
    packages = parse_lock(pins.text)
    unpack = rctx.path(Label("//tools/setup:unpack_packages.sh"))
    rctx.watch(unpack)
    shared = _shared_directory(rctx, pins.cache)
    for group in groups or sorted({p.group: None for p in packages}):
        chosen = [p for p in packages if p.group == group]
        rctx.file(group + ".packages", group_text(packages, group), executable = False)
        store = ""
        if shared:
            digest = _run(rctx, "named", ["sh", "-c", "cat \"$@\" | sha256sum", "_", rctx.path(group + ".packages"), unpack])
            store = "{}/{}".format(shared, digest[:16])
            if _distrusted(rctx, [store]):
                store = ""
        if store and rctx.path(store).exists:
            _run(rctx, "linked", ["sh", "-c", _COPY + _LINK, "_", store, group])
            continue
        files = _fetch(rctx, source, chosen)
        rctx.report_progress("unpacking {} packages".format(len(files)))
        _unpack(rctx, unpack, files, group)
        rctx.delete("debs")
        if store:
            _run(rctx, "kept", ["sh", "-c", _COPY + _KEEP, "_", group, store])
    _mark(rctx, pins.place, "fetched", "wanted")
    return pins

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
chmod go-w -- "$partial/group"
mv -T -- "$partial/group" "$2" 2>/dev/null || { rm -rf -- "$1"; copy "$2" "$1"; }
rm -rf -- "$partial"
"""

_BUILD = '''# Written by @rules_hip//repositories:debian_packages.bzl.

exports_files(["{group}.packages"] + glob(["{group}/**"]))

filegroup(
    name = "files",
    srcs = glob(["{group}/**"]),
    visibility = ["//visibility:public"],
)
'''

def _debian_repository_impl(rctx):
    fetch_packages(
        rctx,
        lock = rctx.attr.lock,
        groups = [rctx.attr.group],
        mirrors = [],
        mirrors_line = "QOLA_DEBIAN_MIRROR=http://HOST/debian",
    )
    rctx.file("BUILD.bazel", _BUILD.format(group = rctx.attr.group), executable = False)

debian_repository = repository_rule(
    implementation = _debian_repository_impl,
    attrs = {
        "group": attr.string(doc = "Which group of the lock.", mandatory = True),
        "lock": attr.label(doc = "A packages.lock.", mandatory = True),
    },
    doc = "Unpacks one group of pinned Debian packages as //:files.",
)
