"""qola_triton_kernel: a kernel in Triton, a code object for each choice and arch."""

load("@rules_hip//lib:finding.bzl", "finding")
load("@rules_hip//lib:settings.bzl", "KNOWN_ARCHS")

QolaTritonInfo = provider(
    doc = "Kernels in Triton, compiled.",
    fields = {"compiled": "depset of struct(name, kernel, arch, code, metadata): one for each code object"},
)

def _points(choices):
    """Every combination of choices, as dicts whose keys are sorted."""
    found = [{}]
    for name in sorted(choices):
        found = [point | {name: value} for point in found for value in choices[name]]
    return found

def instance_name(kernel, point, arch):
    """The name of a compile, as qola/triton/kernel.py has it.

    Args:
      kernel: name of the kernel.
      point: a value for each choice, names sorted.
      arch: the arch.

    Returns:
      The name.
    """
    return "-".join([kernel] + ["{}_{}".format(name, value) for name, value in point.items()] + [arch])

def _check(ctx):
    unknown = [arch for arch in ctx.attr.archs if arch not in KNOWN_ARCHS]
    if unknown:
        fail(finding(
            "ManifestError: unknown arch",
            place = "{}: archs".format(ctx.label),
            found = ", ".join(unknown),
            expected = "archs by their LLVM name, such as gfx942 or gfx1201",
            fix = "remove it",
        ))
    for name, values in ctx.attr.choices.items():
        if not values or len({value: None for value in values}) != len(values):
            fail(finding(
                "ManifestError: choices of a kernel",
                place = "{}: choices, {}".format(ctx.label, name),
                found = str(values),
                expected = "values, each once",
                fix = "remove duplicates",
            ))

def _compile(ctx, function, point, arch):
    name = instance_name(ctx.label.name, point, arch)
    code, metadata, text = [
        ctx.actions.declare_file("{}/{}.{}".format(ctx.label.name, name, end))
        for end in ["hsaco", "json", "s"]
    ]
    args = ctx.actions.args()
    args.add("--source", ctx.file.src)
    args.add("--function", function)
    args.add("--name", name)
    args.add("--arch", arch)
    args.add_all(["{}={}".format(choice, value) for choice, value in point.items()], before_each = "--choice")
    types = ["{}={}".format(parameter, kind) for parameter, kind in sorted(ctx.attr.signature.items())]
    args.add_all(types, before_each = "--type")
    args.add("--timeout", str(ctx.attr.timeout))
    args.add("--code", code)
    args.add("--metadata", metadata)
    args.add("--text", text)
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable._tool,
        inputs = [ctx.file.src] + ctx.files.deps,
        mnemonic = "QolaTriton",
        outputs = [code, metadata, text],
        progress_message = "Compiling " + name,
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )
    return struct(arch = arch, code = code, kernel = ctx.label.name, metadata = metadata, name = name, text = text)

def _qola_triton_kernel_impl(ctx):
    _check(ctx)
    function = ctx.attr.function or ctx.label.name
    compiled = [_compile(ctx, function, point, arch) for point in _points(ctx.attr.choices) for arch in ctx.attr.archs]
    files = [one.code for one in compiled] + [one.metadata for one in compiled]
    return [
        DefaultInfo(files = depset(files), runfiles = ctx.runfiles(files)),
        OutputGroupInfo(text = depset([one.text for one in compiled])),
        QolaTritonInfo(compiled = depset(compiled)),
    ]

qola_triton_kernel = rule(
    implementation = _qola_triton_kernel_impl,
    attrs = {
        "archs": attr.string_list(allow_empty = False, doc = "Archs to compile for, such as gfx942.", mandatory = True),
        "choices": attr.string_list_dict(
            doc = "Values by name. A name is a `constexpr` parameter of the function, an option of Triton's compiler (num_warps, num_stages, waves_per_eu, matrix_instr_nonkdim, kpack, enable_fp_fusion), or stands in braces in types of parameters. Every combination is compiled.",
        ),
        "deps": attr.label_list(allow_files = [".py"], doc = "Python files that `src` imports, in its directory."),
        "function": attr.string(doc = "The function with @triton.jit; by default it has the target's name."),
        "signature": attr.string_dict(doc = "Types of parameters whose annotations say none, or another one. `=0` is a constant in place of a parameter: nothing is handed over for it, and Triton compiles for that value. So can a `constexpr` be said that has one value and shall not be in names."),
        "src": attr.label(allow_single_file = [".py"], doc = "The kernel's Python file.", mandatory = True),
        "timeout": attr.int(doc = "Seconds after which a compile is an error; 0 for none."),
        "_tool": attr.label(cfg = "exec", default = "//qola/triton:tool", executable = True),
    },
    doc = """A kernel in Triton, compiled ahead of time: a code object for each combination of choices, and arch.

Neither a GPU nor ROCm is needed. Each compile is an action of its own, so one
more value compiles only the new instances. Next to each `<instance>.hsaco` is a
`<instance>.json` with the parameters of a launch; `--output_groups=text` builds
the assembly. The same files give the same bytes in any directory.

Types are those of Triton, `*fp16` for a pointer, with a divisor of the value:
`*{dtype}:16`. They are annotations of the function's parameters, or values of
`signature`.

Example:

    qola_triton_kernel(
        name = "attention_forward",
        src = "@qola//qola/triton:kernels/attention_forward.py",
        archs = ["gfx942", "gfx950"],
        choices = {
            "BLOCK_M": ["128"],
            "BLOCK_N": ["64"],
            "CAUSAL": ["0", "1"],
            "HDIM": ["64", "128"],
            "dtype": ["fp16", "bf16"],
        },
        deps = ["@qola//qola/triton:kernels/attention_parts.py"],
    )
""",
)
