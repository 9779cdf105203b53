"""qola_torch_wheel: torch modules and their type stubs as a Python wheel."""

load("//rules/private:bundle.bzl", "BUNDLE_TOOL_ATTRS")
load("//rules/private:providers.bzl", "QolaLibraryInfo")
load(":torch_info.bzl", "TorchInfo")

def _stubs(ctx, module, torch):
    """Writes the type stubs of a module, which is imported for that."""
    output = ctx.actions.declare_file("{}.stubs/{}.pyi".format(ctx.label.name, module.basename.removesuffix(".so")))
    stubgen = ctx.files._stubgen
    (site,) = [file.dirname.rpartition("/")[0] for file in stubgen if file.path.endswith("/pybind11_stubgen/__init__.py")]
    hip = ctx.files.hip
    ctx.actions.run(
        arguments = [ctx.file._make_stubs.path, site, module.path, output.path],
        # Its Python's own; only HIP's runtime is replaced, where PyTorch brings none.
        env = {"LD_LIBRARY_PATH": ":".join([file.dirname for file in hip])} if hip else {},
        executable = torch.interpreter,
        execution_requirements = {"no-remote": "PyTorch is this machine's"},
        inputs = [ctx.file._make_stubs, module] + stubgen + hip,
        mnemonic = "QolaStubs",
        outputs = [output],
        progress_message = "Writing the type stubs of %{input}",
    )
    return output

def _qola_torch_wheel_impl(ctx):
    torch = ctx.attr.torch[TorchInfo]
    tag = "cp" + torch.python.replace(".", "")
    wheel = ctx.actions.declare_file("-".join([
        ctx.attr.package,
        ctx.attr.version,
        tag,
        tag,
        ctx.attr.platform,
    ]) + ".whl")
    libraries = [module[QolaLibraryInfo] for module in ctx.attr.modules]
    modules = [info.library for info in libraries]
    stubs = [_stubs(ctx, module, torch) for module in modules]
    licenses = depset([file for info in libraries for file in info.bundle_files.license_files]).to_list()
    inputs = ctx.actions.declare_file(ctx.label.name + ".json")
    ctx.actions.write(inputs, json.encode({
        "external_libraries": ctx.attr.external_libraries,
        "license_files": [file.path for file in licenses],
        "modules": [file.path for file in modules],
        "python": torch.python,
        "qola_license": ctx.file._license.path,
        "stubs": [file.path for file in stubs],
        "torch": torch.version,
    }))
    ctx.actions.run(
        arguments = ["torch-wheel", "--inputs", inputs.path, "--output", wheel.path],
        executable = ctx.executable._tool,
        inputs = modules + stubs + licenses + [inputs, ctx.file._license],
        mnemonic = "QolaTorchWheel",
        outputs = [wheel],
        progress_message = "Packing %{label}",
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )
    return [
        DefaultInfo(files = depset([wheel]), runfiles = ctx.runfiles([wheel])),
        OutputGroupInfo(stubs = depset(stubs)),
    ]

_qola_torch_wheel = rule(
    implementation = _qola_torch_wheel_impl,
    attrs = BUNDLE_TOOL_ATTRS | {
        "external_libraries": attr.string_list(doc = "As of qola_wheel: PyTorch's and ROCm's libraries."),
        "hip": attr.label(allow_files = True, doc = "HIP's runtime that modules are imported with, for stubs; by default PyTorch's."),
        "modules": attr.label_list(
            doc = "Torch modules of a manifest: @qola_mine//:module_mha_fwd.",
            mandatory = True,
            providers = [QolaLibraryInfo],
        ),
        "package": attr.string(doc = "Name of the Python package, and of the distribution: small letters, digits and _.", mandatory = True),
        "platform": attr.string(default = "linux_x86_64", doc = "Platform tag, as of qola_wheel."),
        "torch": attr.label(doc = "What PyTorch they are for.", mandatory = True, providers = [TorchInfo]),
        "version": attr.string(doc = "Version of the distribution, as Python writes it, such as 1.2.3.", mandatory = True),
        "_license": attr.label(allow_single_file = True, default = "//:LICENSE"),
        "_make_stubs": attr.label(allow_single_file = True, default = "//rules/torch:make_stubs.py"),
        "_stubgen": attr.label(default = "@qola_pip_stubs//:packages"),
    },
)

def qola_torch_wheel(name, modules, package, version, torch = None, **kwargs):
    """Torch modules as a Python wheel, `<package>-<version>-cp311-cp311-<platform>.whl`.

    The package has the modules and type stubs of each, which pybind11-stubgen
    makes: `from qola_mine_torch import mine_module_mha_fwd`. It requires the
    PyTorch that they were built for. The output group `stubs` has the stubs
    alone.

    Example:
        qola_torch_wheel(
            name = "mine_torch_wheel",
            modules = ["@qola_mine//:module_mha_fwd"],
            package = "qola_mine_torch",
            version = "0.1.0",
        )

    Args:
      name: target name.
      modules: torch modules of one manifest, such as @qola_mine//:module_mha_fwd.
      package: name of the Python package, and of the distribution: small letters,
        digits and _.
      version: of the distribution, as Python writes it, such as 1.2.3.
      torch: label of the torch_info of their PyTorch; by default of the one that
        QOLA_TORCH names.
      **kwargs: `platform` and `external_libraries` as of qola_wheel, by default
        linux_x86_64, which promises nothing, and none; and common attributes.
    """
    _qola_torch_wheel(
        name = name,
        # A PyTorch without HIP has no runtime; with the other nothing is launched.
        hip = select({
            Label("//rules/torch:cpu_check"): Label("@rules_hip//gfxemu/fake_hip"),
            "//conditions:default": None,
        }),
        modules = modules,
        package = package,
        torch = torch or Label("@qola_torch//:info"),
        version = version,
        **kwargs
    )
