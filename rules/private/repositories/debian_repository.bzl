"""debian_repository: pinned Debian packages that tests run or link, unpacked in a directory of their own."""

load(":debian_packages.bzl", "fetch_packages")

_BUILD = '''# Written by @qola//rules/private/repositories:debian_repository.bzl.

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
