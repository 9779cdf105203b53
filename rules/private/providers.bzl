"""The interface between qola's rules."""

QolaLibraryInfo = provider(
    doc = "One module of a manifest, built.",
    fields = {
        "archs": "list of strings: archs the library has code for",
        "file_name": "string: <namespace>_<module>.so, the name the library is loaded by",
        "headers": "CcInfo: public headers and the AITER and CK headers they include",
        "library": "File: the shared library",
        "plan": "File: plan.json of the manifest",
    },
)
