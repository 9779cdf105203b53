"""lazy_form: a module's library without its kernels, which are loaded when they are first called."""

load("@rules_cc//cc:defs.bzl", "cc_library")
load("//rules/private:archs.bzl", "by_archs")
load("//rules/private:kernel_target.bzl", "KERNEL_TARGET")
load("//rules/private/compile:hip_source.bzl", "HOST_ONLY")
load(":kernel_libraries.bzl", "kernel_libraries")
load(":lazy_sources.bzl", "lazy_sources")
load(":shared_form.bzl", "shared_form")

def _host_library(name, srcs, **kwargs):
    cc_library(
        name = name,
        srcs = srcs,
        features = ["aiter"],
        linkstatic = True,
        tags = ["supports-path-mapping"],
        **(KERNEL_TARGET | kwargs)
    )

def lazy_form(name, parts, all_kernels, kernels, kernel_headers, stubs, place, tree, plan, headers, copts, **kwargs):
    """Declares the lazy form of a module's library.

    Expands to <name>_lazy, a shared_form; <name>_kernels, the
    kernel_libraries; <name>_lazy.sources, the lazy_sources; and cc_librarys of
    the stubs and of the table of kernels.

    Args:
      name: the module, such as libmha_fwd.
      parts: labels of all that the full library has besides its kernels: a list
        or a select of lists.
      all_kernels: labels of the hip_objects of all kernel instances: what the
        index is of, whatever --@qola//:archs says.
      kernels: the same of those that packs have: a list or a select of lists.
      kernel_headers: labels of header_sets with what kernel instances include.
      stubs: C++ files with the functions of the kernel instances.
      place: where the library's sources are, relative to the directory above
        the library's.
      tree: label of a file at the root of the AITER tree.
      plan: label of plan.json.
      headers: label of a header target for the library's users.
      copts: compiler flags of the module.
      **kwargs: further arguments of shared_form.
    """
    lazy = name + "_lazy"
    lazy_sources(
        name = lazy + ".sources",
        headers = kernel_headers,
        kernels = all_kernels,
        module = name,
        place = place,
        plan = plan,
        target_compatible_with = [Label("//rules/rocm:rocm")],
        tree = tree,
    )
    _host_library(
        name = lazy + ".table",
        srcs = [lazy + ".sources"],
        copts = HOST_ONLY,
        deps = [Label("//cc/runtime:lazy")],
    )
    _host_library(
        name = lazy + ".stubs",
        srcs = stubs,
        copts = HOST_ONLY + copts,
        deps = kernel_headers + [Label("//cc/runtime:lazy")],
    )
    shared_form(
        name = lazy,
        deps = parts + [
            lazy + ".stubs",
            lazy + ".table",
        ],
        directory = "lazy/",
        headers = headers,
        lazy = lazy + ".sources",
        plan = plan,
        **kwargs
    )
    kernel_libraries(
        name = name + "_kernels",
        archs = by_archs(kwargs["archs"], lambda on: on),
        kernels = kernels,
        sources = lazy + ".sources",
        visibility = ["//visibility:public"],
        **KERNEL_TARGET
    )
