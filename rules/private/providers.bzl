"""The interface between qola's rules."""

QolaLibraryInfo = provider(
    doc = "One module of a manifest, built.",
    fields = {
        "archs": "list of strings: archs the library has code for",
        "bundle_files": "QolaBundleFilesInfo of the manifest",
        "file_name": "string: <namespace>_<module>.so, the name the library is loaded by",
        "headers": "CcInfo: public headers and the AITER and CK headers they include",
        "library": "File: the shared library",
        "plan": "File: plan.json of the manifest",
    },
)

QolaBundleFilesInfo = provider(
    doc = "Files of an AITER tree that a bundle holds beside libraries and headers.",
    fields = {
        "configs": "list of File: tuning data",
        "license_files": "list of File: license texts",
        "tree": "File: AITER.json at the tree's root",
    },
)
