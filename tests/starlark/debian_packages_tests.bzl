"""Unit tests of pinned Debian packages: locks read right, and one place for what they unpack to."""

load("@bazel_skylib//lib:unittest.bzl", "asserts", "unittest")
load("@rules_hip//repositories:debian_packages.bzl", "cache_directory", "group_text", "lock_time", "offered_directory", "package_url", "parse_lock", "readable_time")
load("//tests/setup:cache_rule.bzl", "CACHE_RULE")

_LOCK = """# Fields: name version sha256 suite size path group.
# snapshot: 20261030T140801Z
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

def _time_test(ctx):
    """Prevents: another place for a lock resolved anew than bazelw's, and a date that nobody can read."""
    env = unittest.begin(ctx)
    time = lock_time(_LOCK)
    asserts.equals(env, "20261030T140801Z", time)
    asserts.equals(env, "", lock_time("libc6 2.36 bb bookworm 1 pool/x sysroot\n"))
    asserts.equals(env, "2026-10-30 14:08 UTC", readable_time(time))
    asserts.equals(env, "/q/offered/third_party-rocm-20261030T140801Z", offered_directory("/q", "third_party/rocm", time))
    return unittest.end(env)

def _cache_directory_test(ctx):
    """Prevents: unpacked packages where bazelw --uninstall does not look, or below the working directory."""
    env = unittest.begin(ctx)
    for environ, expected in CACHE_RULE:
        asserts.equals(env, expected, cache_directory(environ, "/passwd"))
    return unittest.end(env)

lock_test = unittest.make(_lock_test)
url_test = unittest.make(_url_test)
time_test = unittest.make(_time_test)
cache_directory_test = unittest.make(_cache_directory_test)

def debian_packages_test_suite(name):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
    """
    unittest.suite(name, lock_test, url_test, time_test, cache_directory_test)
