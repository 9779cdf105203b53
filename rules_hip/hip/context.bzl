"""Headers and macros of a target's sources."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load(":compile.bzl", "SOURCES", "rocm_features")

def compilation_contexts(ctx, deps, implementation_deps = []):
    """Collects headers and macros.

    Args:
      ctx: context of a rule with COMPILE_ATTRS.
      deps: list of CcInfo.
      implementation_deps: list of CcInfo, of libraries whose headers only the target's sources include.

    Returns:
      struct(own, public): CompilationContexts of the target's compiles, and of its dependents.
    """
    root = ctx.label.workspace_root
    package = "/".join([part for part in [root, ctx.label.package] if part])
    generated = "/".join([part for part in [ctx.bin_dir.path, package] if part])
    includes = []
    for directory in ctx.attr.includes:
        end = "" if directory in ("", ".") else "/" + directory
        includes += [(package + end).removeprefix("/") or ".", generated + end]
    rocm = rocm_features(ctx)

    # Without sources: Bazel compiles nothing, and makes the links for strip_include_prefix and include_prefix.
    public, _ = cc_common.compile(
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = rocm.toolchain,
        compilation_contexts = [dep.compilation_context for dep in deps],
        defines = ctx.attr.defines,
        feature_configuration = rocm.features,
        include_prefix = getattr(ctx.attr, "include_prefix", ""),
        private_hdrs = [file for file in ctx.files.srcs if not is_source(file)],
        public_hdrs = getattr(ctx.files, "hdrs", []),
        strip_include_prefix = getattr(ctx.attr, "strip_include_prefix", ""),
        system_includes = includes,
        textual_hdrs = getattr(ctx.files, "textual_hdrs", []),
    )
    own = cc_common.merge_cc_infos(
        cc_infos = implementation_deps,
        direct_cc_infos = [CcInfo(compilation_context = public)],
    )
    return struct(own = own.compilation_context, public = public)

def is_source(file):
    """Returns whether a file of `srcs` is compiled; the others are headers."""
    return bool([end for end in SOURCES if file.basename.endswith(end)]) and not file.basename.endswith(".hip.h")
