"""Embeds .co files as data into a library, with a table to find them by key."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "use_cc_toolchain")
load(":cc.bzl", "KERNEL_TARGET", "cc_features")

# The blobs have a section of their own, so that the alignment costs once per
# blob. The loader fills in the addresses in the table: .data.rel.ro is
# read-only after that.
_HEAD = """\
# Written by @qola//rules/private:code_objects.bzl.
# cc/api/qola_asm.h documents the table.
    .section .rodata.qola_code_objects, "a", @progbits
"""

_BLOB = """\
    .p2align 12
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

def _assembly(files):
    """The assembly source for a dict from key to File."""
    keys = sorted(files)
    return "".join(
        [_HEAD] + [
            _BLOB.format(index = i, path = files[key].path)
            for i, key in enumerate(keys)
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

def _embedded_code_objects_impl(ctx):
    files = _files(ctx)
    source = ctx.actions.declare_file(ctx.label.name + ".s")
    ctx.actions.write(source, _assembly(files))
    found = cc_features(ctx)
    _, outputs = cc_common.compile(
        name = ctx.label.name,
        actions = ctx.actions,
        # .incbin reads them: neither sources nor headers.
        additional_inputs = files.values(),
        cc_toolchain = found.toolchain,
        feature_configuration = found.features,
        srcs = [source],
    )
    linking_context, _ = cc_common.create_linking_context_from_compilation_outputs(
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = found.toolchain,
        compilation_outputs = outputs,
        disallow_dynamic_library = True,
        feature_configuration = found.features,
    )
    return [
        CcInfo(linking_context = linking_context),
        DefaultInfo(files = depset(outputs.pic_objects or outputs.objects)),
        OutputGroupInfo(source = depset([source])),
    ]

_embedded_code_objects = rule(
    implementation = _embedded_code_objects_impl,
    attrs = {
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

    The object file contains each file unchanged, aligned to 4096 bytes, and the
    table that qola_asm.cpp (@qola//cc/api:asm) searches. The symbols are hidden:
    every library needs exactly one table of its own, which may be empty.

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
        # As for kernels: keeps the output directory's name out of the key.
        tags = tags + ["supports-path-mapping"],
        **(KERNEL_TARGET | kwargs)
    )
