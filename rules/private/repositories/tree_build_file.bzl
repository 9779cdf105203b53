"""The BUILD file of an AITER tree's repository."""

_BUILD = '''# Written by @qola//rules/private/repositories:tree_build_file.bzl.
# Every file is a target of its own: header sets pick the few they include.

package(default_visibility = ["//visibility:public"])

exports_files(glob(
    ["**"],
    exclude = [".git/**", "BUILD.bazel"],
))
'''

def write_tree_build_file(rctx, source):
    """Makes the tree in the repository's directory one that header sets can pick files from.

    `source` says which tree this is; it goes to AITER.json, whose label stands for the tree.
    """
    rctx.file("BUILD.bazel", _BUILD, executable = False)
    rctx.file("AITER.json", json.encode(source) + "\n", executable = False)
