"""header_set: the headers of one direction, and nothing else of the tree they come from."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")

HeaderSetInfo = provider(
    doc = "Headers of a tree, for a rule that gives them paths of its own.",
    fields = {
        "files": "depset of File: the headers",
        "include_dirs": "list of strings: include directories relative to the tree's root, in search order",
        "root": "string: execution path of the tree's root",
    },
)

def _header_set_impl(ctx):
    root = ctx.attr.tree.label.workspace_root
    prefix = root + "/" if root else ""
    files = depset(ctx.files.headers)
    context = cc_common.create_compilation_context(
        headers = files,
        # As system includes: what upstream headers warn of is upstream's to mend.
        system_includes = depset([prefix + d for d in ctx.attr.include_dirs], order = "preorder"),
    )
    return [
        CcInfo(compilation_context = context),
        DefaultInfo(files = files),
        HeaderSetInfo(files = files, include_dirs = ctx.attr.include_dirs, root = root),
    ]

header_set = rule(
    implementation = _header_set_impl,
    attrs = {
        "headers": attr.label_list(
            allow_files = True,
            doc = "The files a compile may read: the include closure computed by qola/aiter/includes.py.",
        ),
        "include_dirs": attr.string_list(
            doc = "Include directories relative to the tree's root, in search order.",
        ),
        "tree": attr.label(
            allow_single_file = True,
            doc = "Any file at the root of the tree's repository; gives its execution path.",
            mandatory = True,
        ),
    },
    doc = """Headers of a source tree for one group of compiles.

A remote cache key holds every declared input, so a kernel instance gets the
headers its direction includes rather than all of Composable Kernel.
""",
    provides = [CcInfo, HeaderSetInfo],
)
