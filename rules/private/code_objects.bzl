"""Embeds .co files as data into a library, with a table to find them by key."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load("@rules_hip//lib:cc.bzl", "KERNEL_TARGET", "cc_features", "llvm_program", "object_context")
load("@rules_hip//rocm:flags.bzl", "BUNDLE_FORMAT")

# For rules that call compress_code_objects.
COMPRESS_ATTRS = {
    "_compress": attr.label(default = Label("//:compress"), providers = [BuildSettingInfo]),
    "_compress_tool": attr.label(allow_single_file = True, cfg = "exec", default = ":compress.sh", executable = True),
}

def compress_code_objects(ctx, toolchain, files, mnemonic):
    """Declares an action that compresses code objects, if --@qola//:compress is set.

    Args:
      ctx: context of a rule with COMPRESS_ATTRS.
      toolchain: CcToolchainInfo of the ROCm toolchain.
      files: dict from a file name without extension to (File, arch).
      mnemonic: mnemonic of the action.

    Returns:
      dict from the same names to Files in the directory of the target's name; {} without compression.
    """
    if not files or not ctx.attr._compress[BuildSettingInfo].value:
        return {}
    outputs = {name: ctx.actions.declare_file("{}/{}.co".format(ctx.label.name, name)) for name in files}
    args = ctx.actions.args()
    args.add(llvm_program(toolchain, "clang-offload-bundler"))
    for name, (file, arch) in files.items():
        args.add_all([arch, file, outputs[name]])
    ctx.actions.run(
        arguments = [args],
        env = BUNDLE_FORMAT,
        executable = ctx.executable._compress_tool,
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset([file for file, _ in files.values()], transitive = [toolchain.all_files]),
        mnemonic = mnemonic,
        outputs = outputs.values(),
        progress_message = "Compressing code objects of %{label}",
    )
    return outputs

# The blobs have a section of their own, so that the alignment costs once per
# blob: HIP's runtime uses uncompressed code in place, in pages. The loader fills
# in the addresses in the table: .data.rel.ro is read-only after that.
_HEAD = """\
# Written by @qola//rules/private:code_objects.bzl.
# runtime/api/qola_asm.h documents the table.
    .section .rodata.qola_code_objects, "a", @progbits
"""

_BLOB = """\
    .p2align {alignment}
.Ldata{index}:
    .incbin "{path}"
.Lend{index}:
"""

_TABLE = """\
    .section .rodata.qola_code_object_keys, "aMS", @progbits, 1
{keys}\
    .section .data.rel.ro.qola_code_objects, "aw", @progbits
    .p2align 3
    .globl qola_asm_table
    .hidden qola_asm_table
    .type qola_asm_table, @object
qola_asm_table:
{rows}\
    .size qola_asm_table, . - qola_asm_table
    .section .rodata.qola_code_object_count, "a", @progbits
    .p2align 3
    .globl qola_asm_table_size
    .hidden qola_asm_table_size
    .type qola_asm_table_size, @object
qola_asm_table_size:
    .quad {count}
    .size qola_asm_table_size, 8
    .section .note.GNU-stack, "", @progbits
"""

def _assembly(keys, paths, alignment):
    """The assembly source for sorted keys, and the paths of their files."""
    return "".join(
        [_HEAD] + [
            _BLOB.format(alignment = alignment, index = i, path = path)
            for i, path in enumerate(paths)
        ] + [_TABLE.format(
            count = len(keys),
            keys = "".join([
                ".Lkey{}:\n    .asciz \"{}\"\n".format(i, key)
                for i, key in enumerate(keys)
            ]),
            rows = "".join([
                "    .quad .Lkey{i}, .Ldata{i}, .Lend{i} - .Ldata{i}\n".format(i = i)
                for i in range(len(keys))
            ]),
        )],
    )

def _files(ctx):
    files = {}
    for target, key in ctx.attr.code_objects.items():
        (file,) = target.files.to_list()
        if key in files:
            fail("{}: two code objects with the key {}: {} and {}".format(ctx.label, key, files[key].short_path, file.short_path))
        if [c for c in "\"\\\n".elems() if c in key + file.path]:
            fail("{}: a quote, backslash or line end in {} or its path {}".format(ctx.label, key, file.path))
        files[key] = file
    return files

def _include_directory(file):
    return "-I" + file.dirname

def _embedded_code_objects_impl(ctx):
    files = _files(ctx)
    keys = sorted(files)
    found = cc_features(ctx)
    compressed = compress_code_objects(
        ctx,
        found.toolchain,
        {str(i): (files[key], key.split("/")[1]) for i, key in enumerate(keys)},
        "QolaCompress",
    ).values()
    source = ctx.actions.declare_file(ctx.label.name + ".s")

    # The directory of compressed files depends on options of the surrounding build: the assembler searches it.
    paths = [file.basename for file in compressed] or [files[key].path for key in keys]
    ctx.actions.write(source, _assembly(keys, paths, 3 if compressed else 12))
    object = ctx.actions.declare_file(ctx.label.name + ".pic.o")
    action = dict(action_name = ACTION_NAMES.assemble, feature_configuration = found.features)
    variables = cc_common.create_compile_variables(
        cc_toolchain = found.toolchain,
        feature_configuration = found.features,
        use_pic = True,
    )
    args = ctx.actions.args()
    args.add_all(cc_common.get_memory_inefficient_command_line(variables = variables, **action))
    args.add_all(compressed[:1], map_each = _include_directory)
    args.add("-c")
    args.add(source)
    args.add("-o", object)
    ctx.actions.run(
        arguments = [args],
        env = cc_common.get_environment_variables(variables = variables, **action),
        executable = cc_common.get_tool_for_action(**action),
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset([source] + (compressed or files.values()), transitive = [found.toolchain.all_files]),
        mnemonic = "QolaAssemble",
        outputs = [object],
        progress_message = "Embedding code objects of %{label}",
    )
    return [
        CcInfo(linking_context = object_context(ctx, found.toolchain, found.features, object)),
        DefaultInfo(files = depset([object])),
        OutputGroupInfo(source = depset([source])),
    ]

_embedded_code_objects = rule(
    implementation = _embedded_code_objects_impl,
    attrs = COMPRESS_ATTRS | {
        "code_objects": attr.label_keyed_string_dict(
            allow_files = [".co"],
            doc = "The files, each with its key: `hsa/<arch>/<subdir>/<kernel>.co`.",
        ),
    },
    doc = "Implementation of the macro embedded_code_objects.",
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)

def embedded_code_objects(name, code_objects, tags = [], **kwargs):
    """Embeds code objects of AITER's assembly (v3) kernels into a library.

    The object file contains each file compressed, or unchanged and aligned to 4096
    bytes without --@qola//:compress, and the table that qola_asm.cpp
    (@qola//runtime/api:asm) searches. The symbols are hidden: every library needs
    exactly one table of its own, which may be empty.

    Args:
      name: target name.
      code_objects: dict from the label of a .co file to its key,
        hsa/<arch>/<subdir>/[MI300/|MI308/]<kernel>.co, in any order.
      tags: tags of the target.
      **kwargs: further common attributes.
    """
    _embedded_code_objects(
        name = name,
        code_objects = code_objects,
        tags = tags,
        **(KERNEL_TARGET | kwargs)
    )
