"""The targets that are made of a manifest's modules, in its repository and in a user's package."""

load(":bundle.bzl", "qola_bundle", "qola_wheel")
load(":emulation.bzl", "emulated_module", "launch_test", "library_caller")
load(":lazy.bzl", "qola_kernel_pack")
load(":library.bzl", "qola_library")
load(":static.bzl", "qola_static_library")

# The build checks the files against the platform (docs/guide/bundle.md). ROCm provides its runtime.
_WHEELS_FOR = dict(
    external_libraries = ["libamdhip64.so"],
    platform = "manylinux_2_28_x86_64",
)

def _declare_packages(manifest, modules, repository, bundle, lazy, split, prefix, static, packs, triton, version, tags, **kwargs):
    """Declares the targets that are made of several modules; all but the bundle are manual."""
    manual = tags + ["manual"]
    qola_bundle(
        name = bundle,
        libraries = ["{}:{}".format(repository, module) for module in modules],
        static = ":{}static".format(prefix) if static else None,
        tags = tags,
        triton = triton,
        **kwargs
    )
    qola_wheel(
        name = prefix + "wheel",
        bundle = bundle,
        package = "qola_" + manifest,
        tags = manual,
        version = version,
        **(_WHEELS_FOR | kwargs)
    )
    if not modules:
        return
    qola_wheel(
        name = prefix + "jax_wheel",
        bundle = bundle,
        jax = Label("//runtime/jax"),
        package = "qola_" + manifest,
        tags = manual,
        version = version,
        **(_WHEELS_FOR | kwargs)
    )
    qola_static_library(
        name = prefix + "static",
        modules = ["{}:{}".format(repository, module) for module in modules],
        tags = manual,
        **kwargs
    )
    qola_kernel_pack(
        name = prefix + "pack",
        archs = packs,
        modules = ["{}:{}_kernels".format(repository, module) for module in modules],
        tags = manual,
        **kwargs
    )
    qola_bundle(
        name = split,
        libraries = ["{}:{}".format(repository, module) for module in modules],
        split = True,
        tags = manual,
        triton = triton,
        **kwargs
    )
    qola_wheel(
        name = prefix + "split_wheel",
        bundle = split,
        package = "qola_" + manifest,
        split = True,
        tags = manual,
        version = version,
        **(_WHEELS_FOR | kwargs)
    )
    qola_bundle(
        name = lazy,
        libraries = ["{}:{}_lazy".format(repository, module) for module in modules],
        packs = [":{}pack".format(prefix)] if packs else [],
        tags = manual,
        triton = triton,
        **kwargs
    )
    qola_wheel(
        name = prefix + "lazy_wheel",
        bundle = lazy,
        package = "qola_{}_lazy".format(manifest),
        tags = manual,
        version = version,
        **(_WHEELS_FOR | kwargs)
    )

def manifest_targets(name, modules, version, triton = None):
    """Declares the targets of a manifest's repository besides its libraries.

    | Target | Content |
    | --- | --- |
    | `bundle`, `bundle_tar`, `wheel` | a bundle of the libraries |
    | `jax_wheel` | `wheel` with the JAX functions |
    | `lazy_bundle`, `lazy_bundle_tar`, `lazy_wheel` | a bundle of the lazy libraries |
    | `split_bundle`, `split_bundle_tar`, `split_wheel` | a bundle of the split libraries |
    | `static` | a qola_static_library of the modules |
    | `pack` | a qola_kernel_pack of the modules |
    | `<module>_launch_test` | a test that each entry point launches its kernels |
    | `<module>_emulated`, `<module>_caller` | a module for qola_numeric_test, and the library by which it calls entry points |

    Without modules, only the first row, for kernels in Triton.

    Args:
      name: the manifest.
      modules: its attention modules.
      version: version of the wheels.
      triton: label of its library of kernels in Triton, for the bundles.
    """
    _declare_packages(
        manifest = name,
        bundle = "bundle",
        lazy = "lazy_bundle",
        modules = modules,
        packs = [],
        prefix = "",
        repository = "",
        split = "split_bundle",
        static = False,
        tags = ["manual"],
        triton = triton,
        version = version,
        visibility = ["//visibility:public"],
    )
    for module in modules:
        launch_test(
            name = module + "_launch_test",
            library = module,
            module = module,
        )
        library_caller(
            name = module + "_caller",
            library = module,
            module = module,
        )
        emulated_module(
            name = module + "_emulated",
            caller = module + "_caller",
            library = module,
            module = module,
            sources = module + ".sources",
            tags = ["manual"],
            visibility = ["//visibility:public"],
        )
        native.filegroup(
            name = module + ".sources",
            srcs = native.glob([module + "/dispatch/*.cpp", module + "/kernels/*.cpp"], allow_empty = True),
            tags = ["manual"],
            visibility = ["//visibility:private"],
        )

def aiter_targets(name, modules, version, functions = None):
    """Declares the targets `bundle`, `bundle_tar` and `wheel` of modules that AITER's own Python imports.

    Args:
      name: the manifest.
      modules: its modules.
      version: version of the wheel.
      functions: label of its function_libraries, None without one.
    """
    common = dict(
        tags = ["manual"],
        visibility = ["//visibility:public"],
    )
    qola_bundle(
        name = "bundle",
        for_aiter = True,
        functions = functions,
        libraries = [":" + module for module in modules],
        **common
    )
    qola_wheel(
        name = "wheel",
        bundle = "bundle",
        package = "qola_" + name,
        version = version,
        **common
    )

def qola_manifest_targets(name, modules = ["libmha_bwd", "libmha_fwd"], static = False, packs = [], triton = False, version = "", tags = [], **kwargs):
    """Declares the targets of a manifest in the calling package.

    | Target | In `@qola_<name>` | Rule |
    | --- | --- | --- |
    | `<name>_<module>` | `<module>` | qola_library |
    | `<name>_<module>_lazy` | `<module>_lazy` | qola_library, lazy |
    | `<name>`, `<name>_tar` | `bundle`, `bundle_tar` | qola_bundle of the libraries |
    | `<name>_lazy`, `<name>_lazy_tar` | `lazy_bundle`, `lazy_bundle_tar` | qola_bundle of the lazy libraries |
    | `<name>_split`, `<name>_split_tar` | `split_bundle`, `split_bundle_tar` | qola_bundle of the libraries, split by arch |
    | `<name>_wheel`, `<name>_lazy_wheel`, `<name>_split_wheel` | `wheel`, `lazy_wheel`, `split_wheel` | qola_wheel of the bundles, for manylinux_2_28 and ROCm 7 |
    | `<name>_jax_wheel` | `jax_wheel` | `<name>_wheel` with `qola_<name>.jax`, attention for JAX |
    | `<name>_static` | `static` | qola_static_library of the modules |
    | `<name>_pack` | `pack` | qola_kernel_pack of the modules |

    Lazy and split libraries, wheels, archives and packs are `manual`: `//...` does not
    build them. The manifest's repository declares the targets of the second
    column without a call. To choose names or contents, call the rules directly.

    Example:
        qola_manifest_targets(name = "te")

    Args:
      name: the manifest, as in qola.manifest, and the prefix of the targets'
        names. The wheels' packages are qola_<name> and qola_<name>_lazy.
      modules: the attention modules of the manifest.
      triton: whether the bundles contain the library of the manifest's kernels in
        Triton, `@qola_<name>//:triton_library`.
      static: whether the bundle contains the archive.
      packs: archs of the pack, which the bundle of lazy libraries then contains.
        By default the pack has all archs and the bundle has no pack.
      version: version of the wheels; by default that of the calling module, else
        0.0.0.
      tags: tags of all targets.
      **kwargs: further common attributes of all targets, such as visibility.
    """
    repository = "@qola_{}//".format(name)
    for module in modules:
        qola_library(
            name = "{}_{}".format(name, module),
            library = "{}:{}".format(repository, module),
            tags = tags,
            **kwargs
        )
        qola_library(
            name = "{}_{}_lazy".format(name, module),
            library = "{}:{}_lazy".format(repository, module),
            tags = tags + ["manual"],
            **kwargs
        )
    _declare_packages(
        manifest = name,
        bundle = name,
        lazy = name + "_lazy",
        modules = modules,
        packs = packs,
        prefix = name + "_",
        repository = repository,
        split = name + "_split",
        static = static,
        tags = tags,
        triton = repository + ":triton_library" if triton else None,
        version = version or native.module_version() or "0.0.0",
        **kwargs
    )
