"""static_form: a module of a manifest as one object file, of whose symbols others see the entry points alone."""

load("@rules_cc//cc:defs.bzl", "CcInfo")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cpp_toolchain", "use_cc_toolchain")
load("//rules/private:providers.bzl", "QolaStaticModuleInfo")
load("//rules/rocm:wrapped.bzl", "WRAPPED")

def _objects(deps):
    found = {}
    for dep in deps:
        for linker_input in dep[CcInfo].linking_context.linker_inputs.to_list():
            for library in linker_input.libraries:
                for object in library.pic_objects:
                    found[object] = None
    return found.keys()

def _run(ctx, toolchain, program, arguments, inputs, output, mnemonic, message):
    ctx.actions.run(
        arguments = arguments,
        executable = toolchain.ld_executable.rpartition("/")[0] + "/" + program,
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset(inputs, transitive = [toolchain.all_files]),
        mnemonic = mnemonic,
        outputs = [output],
        progress_message = message,
    )

def _joined(ctx, toolchain):
    # The linker resolves what the objects have among themselves.
    output = ctx.actions.declare_file(ctx.label.name + ".joined.o")
    objects = _objects(ctx.attr.deps)
    flags = ctx.actions.args()
    flags.add_all(["-flavor", "gnu", "-r"] + WRAPPED)

    # Inline functions are in groups of the same names everywhere, of which a
    # linker keeps one: without groups each module keeps its own.
    flags.add("--force-group-allocation")

    # One section for a function, so that --gc-sections can still drop it.
    flags.add("--unique")
    flags.add("-o", output)
    files = ctx.actions.args()
    files.add_all(objects)

    # There are thousands.
    files.use_param_file("@%s", use_always = True)
    files.set_param_file_format("multiline")
    _run(ctx, toolchain, "lld", [flags, files], objects, output, "QolaJoin", "Joining the objects of %{label}")
    return output

def _localised(ctx, toolchain, joined):
    output = ctx.actions.declare_file(ctx.attr.file)
    namespace = ctx.attr.namespace
    exported = [
        "_ZN4qola{}*".format("{}{}".format(len(namespace), namespace) if namespace else ""),
        "qola_{}mha_*".format(namespace + "_" if namespace else ""),
    ]
    args = ctx.actions.args()
    args.add("--wildcard")
    args.add_all(exported, format_each = "--keep-global-symbol=%s")

    # A library that has it inside does not export it, whatever its version script.
    args.add_all(exported, format_each = "--set-symbol-visibility=%s=hidden")

    # As rules/private/large_code.ld, but in the object: its user's linker needs no script.
    args.add("--rename-section=.ltext=.text,alloc,code,readonly")

    # Both name symbols by their number, which is another now.
    args.add("--strip-unneeded")
    args.add("--remove-section=.llvm_addrsig")
    args.add(joined)
    args.add(output)
    _run(ctx, toolchain, "llvm-objcopy", [args], [joined], output, "QolaLocalise", "Hiding the symbols of %{label}")
    return output

def _static_module_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    joined = _joined(ctx, toolchain)
    object = _localised(ctx, toolchain, joined)
    return [
        DefaultInfo(files = depset([object])),
        OutputGroupInfo(joined = depset([joined]), plan = depset([ctx.file.plan])),
        QolaStaticModuleInfo(
            headers = ctx.attr.headers[CcInfo],
            namespace = ctx.attr.namespace,
            object = object,
            plan = ctx.file.plan,
        ),
    ]

static_form = rule(
    implementation = _static_module_impl,
    attrs = {
        "deps": attr.label_list(
            doc = "What the module's library is linked from.",
            mandatory = True,
            providers = [CcInfo],
        ),
        "file": attr.string(doc = "File name of the object, <namespace>_<module>.o.", mandatory = True),
        "headers": attr.label(doc = "Header target for users of the module.", mandatory = True, providers = [CcInfo]),
        "namespace": attr.string(doc = "The manifest's namespace, below qola::; empty for qola:: itself."),
        "plan": attr.label(allow_single_file = [".json"], doc = "plan.json of the manifest.", mandatory = True),
    },
    doc = """A module as one relocatable object, for qola_static_library.

Of its symbols only `qola::<namespace>::*` and the C functions
`qola_<namespace>_mha_*` can be linked to, and those are hidden: they end in the
program or library that the object becomes part of. All others are local, so
that nothing of another AITER in the process takes their place, and they take
nobody's. The output group `joined` is the object with all
its symbols.
""",
    fragments = ["cpp"],
    provides = [QolaStaticModuleInfo],
    toolchains = use_cc_toolchain(),
)
