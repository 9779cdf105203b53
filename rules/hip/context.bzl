"""Headers and macros of a target's sources."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load(":compile.bzl", "SOURCES")

def compilation_contexts(ctx, deps):
    """Collects headers and macros.

    Args:
      ctx: context of a rule with COMPILE_ATTRS.
      deps: list of CcInfo.

    Returns:
      struct(own, public): CompilationContexts of the target's compiles, and of its dependents.
    """
    root = ctx.label.workspace_root
    outputs = "/".join([part for part in [ctx.bin_dir.path, root] if part])
    package = "/".join([part for part in [root, ctx.label.package] if part])
    generated = "/".join([part for part in [outputs, ctx.label.package] if part])
    headers = getattr(ctx.files, "hdrs", [])
    includes = []
    for directory in ctx.attr.includes:
        end = "" if directory in ("", ".") else "/" + directory
        includes += [(package + end).removeprefix("/") or ".", generated + end]
    public = cc_common.create_compilation_context(
        defines = depset(ctx.attr.defines),
        headers = depset(headers),
        quote_includes = depset([root or ".", outputs]),
        system_includes = depset(includes),
    )
    private = cc_common.create_compilation_context(
        defines = depset(ctx.attr.local_defines),
        headers = depset([file for file in ctx.files.srcs if not is_source(file)] + headers),
    )

    def merged(contexts):
        infos = [CcInfo(compilation_context = context) for context in contexts]
        return cc_common.merge_cc_infos(direct_cc_infos = infos, cc_infos = deps).compilation_context

    return struct(own = merged([private, public]), public = merged([public]))

def is_source(file):
    """Returns whether a file of `srcs` is compiled; the others are headers."""
    return bool([end for end in SOURCES if file.basename.endswith(end)]) and not file.basename.endswith(".hip.h")
