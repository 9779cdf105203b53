"""hip_code_object: kernels as files for hipModuleLoad."""

load("@rules_cc//cc:defs.bzl", "CcInfo")
load("//lib:finding.bzl", "finding")
load(":compile.bzl", "COMPILE_ATTRS", "HEADERS", "SOURCES", "compile_source", "hip_compiler", "selected_archs")
load(":context.bzl", "compilation_contexts", "is_source")
load(":toolchain.bzl", "use_hip_toolchain")

def _metadata(ctx, code):
    output = ctx.actions.declare_file(code.basename.removesuffix(".hsaco") + ".json", sibling = code)
    args = ctx.actions.args()
    args.add(code)
    args.add(output)
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable._metadata,
        inputs = [code],
        mnemonic = "QolaHipMetadata",
        outputs = [output],
        progress_message = "Reading the kernels of %{input}",
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )
    return output

def _hip_code_object_impl(ctx):
    context = compilation_contexts(ctx, [dep[CcInfo] for dep in ctx.attr.deps]).own
    sources = [file for file in ctx.files.srcs if is_source(file)]
    if not sources:
        fail(finding(
            "no source to compile",
            place = "{}: srcs".format(ctx.label),
            found = ", ".join([file.basename for file in ctx.files.srcs]) or "an empty list",
            expected = "a file that ends in " + ", ".join(SOURCES),
            fix = "add the file with the kernels",
        ))
    files = []
    for arch in selected_archs(ctx):
        flags = ["--offload-device-only", "--no-gpu-bundle-output"]
        command = hip_compiler(ctx, [arch], flags, context)
        for src in sources:
            code = compile_source(ctx, command, src, ".hsaco", "." + arch.replace(":", "_"))
            files += [code, _metadata(ctx, code)]
    return [DefaultInfo(files = depset(files), runfiles = ctx.runfiles(files))]

hip_code_object = rule(
    implementation = _hip_code_object_impl,
    attrs = COMPILE_ATTRS | {
        "deps": attr.label_list(doc = "Libraries whose headers the sources include.", providers = [CcInfo]),
        "srcs": attr.label_list(allow_files = SOURCES + HEADERS, doc = "HIP sources, each a code object of its own, and headers.", mandatory = True),
        "_metadata": attr.label(cfg = "exec", default = "//qola_base/code_object:metadata", executable = True),
    },
    doc = """HIP sources as code objects, for hipModuleLoad.

For each source and arch it builds `_hip/<name>/<source>.<arch>.hsaco`, and next
to it a .json with the kernels: symbol, arguments with offset and size in bytes,
registers, LDS, scratch memory and the largest block. Programs find the files in
their runfiles if the target is in their `data`.

Example:
    hip_code_object(
        name = "kernels",
        srcs = ["kernels.hip"],
        archs = ["gfx942"],
    )
""",
    fragments = ["cpp"],
    toolchains = use_hip_toolchain(),
)
