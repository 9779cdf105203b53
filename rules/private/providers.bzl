"""The interface between qola's rules."""

QolaLibraryInfo = provider(
    doc = "One module of a manifest, built.",
    fields = {
        "archs": "list of strings: archs the library has code for",
        "bundle_files": "QolaBundleFilesInfo of the manifest",
        "debug": "File: the symbols of the library",
        "file_name": "string: <namespace>_<module>.so, the name the library is loaded by",
        "headers": "CcInfo: public headers and the AITER and CK headers they include",
        "lazy": "LazySourcesInfo of a lazy library, None for one that has its kernels inside",
        "library": "File: the shared library",
        "names": "File: directory with a library for each further name of a Python module; None without one",
        "plan": "File: plan.json of the manifest",
        "split": "struct(debug, library, packs) of the host part: two Files, and a dict from an arch to a File; None for a library that cannot be split",
        "static": "QolaStaticModuleInfo, None for a lazy library and for a module that Python imports",
    },
)

FunctionLibrariesInfo = provider(
    doc = "The libraries of functions of AITER's second JIT, csrc/cpp_itfs.",
    fields = {
        "libraries": "list of QolaLibraryInfo",
    },
)

LazySourcesInfo = provider(
    doc = "What a lazy library needs to have its kernels compiled later.",
    fields = {
        "index": "File: kernels.index",
        "place": "string: where `root` has to be, relative to the directory above the library's: share/qola/<namespace>/<module>",
        "root": "File: directory of the index, sources, headers and entry sources",
    },
)

QolaStaticModuleInfo = provider(
    doc = "One module of a manifest as an object file.",
    fields = {
        "archiver": "struct(toolchain, features) of the ROCm toolchain, for archives of the object",
        "headers": "CcInfo: public headers and the AITER and CK headers they include",
        "joined": "File: the object before symbols are hidden",
        "namespace": "string: the manifest's, below qola::; empty for qola:: itself",
        "object": "File: the object; of its symbols only those of the namespace are not local",
        "plan": "File: plan.json of the manifest",
    },
)

QolaStaticInfo = provider(
    doc = "Modules of a manifest as one archive.",
    fields = {
        "archive": "File: libqola_<namespace>.a",
        "modules": "list of strings: the modules, each as <namespace>_<module>",
        "plan": "File: plan.json of the manifest",
    },
)

KernelLibrariesInfo = provider(
    doc = "The kernel libraries of a module, each an output that is made when somebody asks for it.",
    fields = {
        "archs": "list of string: archs of the module, also those that --@qola//:archs leaves out",
        "index": "File: kernels.index",
        "libraries": "list of struct(name, arch, file)",
    },
)

QolaBundleFilesInfo = provider(
    doc = "Files of an AITER tree that a bundle contains in addition to libraries and headers.",
    fields = {
        "configs": "list of File: tuning data",
        "license_files": "list of File: license texts",
        "tree": "File: AITER.json at the tree's root",
    },
)

TritonLibraryInfo = provider(
    doc = "A library of kernels in Triton, built.",
    fields = {
        "archs": "list of strings: archs that it has kernels for",
        "bundle_files": "QolaBundleFilesInfo of its manifest, None without one",
        "headers": "dict from a name in include/ to a File",
        "library": "File: <namespace>_triton.so, the name it is loaded by",
        "packs": "dict from an arch to a File: <namespace>_triton-<arch>.qpack",
        "plan": "File: plan.json of its manifest, None without one",
    },
)

QolaBundleInfo = provider(
    doc = "A bundle.",
    fields = {
        "parts": "list of strings: the archs of a split bundle, empty for an unsplit one",
        "tag": "string: tags of Python and ABI of its wheels, such as py3-none",
    },
)

EmulatedModuleInfo = provider(
    doc = "One module of a manifest, to be run without a GPU.",
    fields = {
        "caller": "File: the library that calls entry points with values by name",
        "files": "depset of File: all of it, with dispatch and sources",
        "kernels": "list of string: kernel instances",
        "library": "File: the shared library",
        "module": "string: the module, as plan.json names it",
        "plan": "File: plan.json of the manifest; dispatch and sources are in the same directory",
    },
)
