"""Parts that rules which compile and link have in common."""

load("@rules_cc//cc:defs.bzl", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain")

# Attributes of targets whose actions make kernels and libraries.
KERNEL_TARGET = {
    # Requirements on remote workers, with names and values of the Remote
    # Execution API's platform lexicon. They are set on targets, not by an
    # option, because they are part of every action's key: local and remote
    # builds share one cache.
    "exec_properties": {
        "ISA": "x86-64",
        "OSFamily": "linux",
    },
    # Without the transition a host compiler would compile HIP.
    "target_compatible_with": [Label("//rocm")],
}

_CC_TYPE = "@bazel_tools//tools/cpp:toolchain_type"

def cc_features(ctx, requested = [], unsupported = [], toolchain = None, type = _CC_TYPE):
    """Returns struct(toolchain, features, type): a C++ toolchain with `requested` features added and `unsupported` disabled.

    Without `toolchain`, it is that of the rule's configuration. `type` is its type, for `toolchain` of actions: Bazel
    runs an action where the toolchain of its type runs.
    """
    toolchain = toolchain or find_cc_toolchain(ctx)
    return struct(
        features = cc_common.configure_features(
            ctx = ctx,
            cc_toolchain = toolchain,
            requested_features = ctx.features + requested,
            unsupported_features = ctx.disabled_features + unsupported,
        ),
        toolchain = toolchain,
        type = type,
    )

def object_context(ctx, toolchain, features, object):
    """Returns the linking context of the one object of a target.

    Args:
      ctx: the rule context.
      toolchain: CcToolchainInfo.
      features: its feature configuration.
      object: File, compiled with -fPIC.
    """
    context, _ = cc_common.create_linking_context_from_compilation_outputs(
        # cc_shared_library links only objects whose name is that of their target.
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(pic_objects = depset([object])),
        disallow_dynamic_library = True,
        feature_configuration = features,
    )
    return context

def llvm_program(toolchain, name):
    """Returns the path of an LLVM program of the ROCm toolchain, such as llvm-objcopy."""
    return toolchain.ld_executable.rpartition("/")[0] + "/" + name

def llvm_action(ctx, toolchain, program, arguments, inputs, output, mnemonic, message):
    """Declares an action that runs one of the toolchain's LLVM programs.

    Args:
      ctx: the rule context.
      toolchain: CcToolchainInfo of the ROCm toolchain.
      program: name of the program, such as llvm-objcopy.
      arguments: list of Args or strings.
      inputs: list of File.
      output: File to write.
      mnemonic: mnemonic of the action.
      message: progress message.
    """
    ctx.actions.run(
        arguments = arguments,
        executable = llvm_program(toolchain, program),
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset(inputs, transitive = [toolchain.all_files]),
        mnemonic = mnemonic,
        outputs = [output],
        progress_message = message,
        toolchain = _CC_TYPE,
    )
