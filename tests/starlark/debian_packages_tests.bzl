"""Unit tests of pinned Debian packages: locks read right, and one place for what they unpack to."""

load("@bazel_skylib//lib:unittest.bzl", "asserts", "unittest")

# What is tested is private on purpose.
# buildifier: disable=bzl-visibility
load("//rules/private/repositories:debian_packages.bzl", "cache_directory", "group_text", "package_url", "parse_lock")

_LOCK = """# Fields: name version sha256 suite size path group.
# download-megabytes: 3
clang-22 1:22.1.8-1+b2 aa forky 140992 pool/main/l/clang-22_22.1.8-1+b2_amd64.deb compiler
libc6 2.36 bb bookworm 2759320 pool/main/g/libc6_2.36~1_amd64.deb sysroot
"""

def _lock_test(ctx):
    """Prevents: a package unpacked into the wrong group, or asked for under the wrong name."""
    env = unittest.begin(ctx)
    packages = parse_lock(_LOCK)
    asserts.equals(env, ["clang-22", "libc6"], [p.name for p in packages])
    asserts.equals(env, ["compiler", "sysroot"], [p.group for p in packages])
    asserts.equals(env, 140992, packages[0].size)
    asserts.equals(env, "1:22.1.8-1+b2", packages[0].version)
    asserts.equals(env, "clang-22 1:22.1.8-1+b2 aa\n", group_text(packages, "compiler"))
    asserts.equals(env, "", group_text(packages, "other"))
    return unittest.end(env)

def _url_test(ctx):
    """Prevents: a mirror that is asked for a name in which "+" means a space."""
    env = unittest.begin(ctx)
    packages = parse_lock(_LOCK)
    asserts.equals(
        env,
        "http://host/debian/pool/main/l/clang-22_22.1.8-1%2Bb2_amd64.deb",
        package_url("http://host/debian/", packages[0]),
    )
    asserts.equals(env, "http://host/debian/pool/main/g/libc6_2.36%7E1_amd64.deb", package_url("http://host/debian", packages[1]))
    return unittest.end(env)

def _cache_directory_test(ctx):
    """Prevents: unpacked packages where bazelw --uninstall does not look, or below the working directory."""
    env = unittest.begin(ctx)
    home = {"HOME": "/home/me"}
    asserts.equals(env, "/home/me/.cache/qola", cache_directory(home))
    asserts.equals(env, "/x/qola", cache_directory(home | {"XDG_CACHE_HOME": "/x"}))
    asserts.equals(env, "/q", cache_directory(home | {"QOLA_CACHE_HOME": "/q", "XDG_CACHE_HOME": "/x"}))
    asserts.equals(env, "/home/me/.cache/qola", cache_directory(home | {"QOLA_CACHE_HOME": "", "XDG_CACHE_HOME": ""}))
    asserts.equals(env, "", cache_directory({}))
    asserts.equals(env, "/x/qola", cache_directory(home | {"QOLA_CACHE_HOME": "relative", "XDG_CACHE_HOME": "/x"}))
    asserts.equals(env, "/home/me/.cache/qola", cache_directory(home | {"XDG_CACHE_HOME": "relative"}))
    asserts.equals(env, "", cache_directory({"HOME": "relative"}))
    return unittest.end(env)

lock_test = unittest.make(_lock_test)
url_test = unittest.make(_url_test)
cache_directory_test = unittest.make(_cache_directory_test)

def debian_packages_test_suite(name):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
    """
    unittest.suite(name, lock_test, url_test, cache_directory_test)
