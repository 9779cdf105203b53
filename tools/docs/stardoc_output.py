"""Reads the output of Bazel's starlark_doc_extract, a binary ModuleInfo message.

No package contains Bazel's stardoc_output.proto, so the messages are declared here, with the fields
that qola reads; protobuf skips other fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE = "stardoc_output"
_ATTRIBUTE_TYPES = (
    *("UNKNOWN", "NAME", "INT", "LABEL", "STRING", "STRING_LIST", "INT_LIST", "LABEL_LIST"),
    *("BOOLEAN", "LABEL_STRING_DICT", "STRING_DICT", "STRING_LIST_DICT", "OUTPUT", "OUTPUT_LIST"),
)
#: Number and type of fields by message; "*" marks a list.
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "ModuleInfo": {
        "rule_info": (1, "RuleInfo*"),
        "provider_info": (2, "ProviderInfo*"),
        "func_info": (3, "StarlarkFunctionInfo*"),
        "module_docstring": (5, "string"),
        "module_extension_info": (7, "ModuleExtensionInfo*"),
    },
    "RuleInfo": {
        "rule_name": (1, "string"),
        "doc_string": (2, "string"),
        "attribute": (3, "AttributeInfo*"),
    },
    "AttributeInfo": {
        "name": (1, "string"),
        "doc_string": (2, "string"),
        "type": (3, "AttributeType"),
        "mandatory": (4, "bool"),
        "default_value": (6, "string"),
    },
    "StarlarkFunctionInfo": {
        "function_name": (1, "string"),
        "parameter": (2, "FunctionParamInfo*"),
        "doc_string": (3, "string"),
    },
    "FunctionParamInfo": {
        "name": (1, "string"),
        "doc_string": (2, "string"),
        "default_value": (3, "string"),
        "mandatory": (4, "bool"),
    },
    "ProviderInfo": {
        "provider_name": (1, "string"),
        "doc_string": (2, "string"),
        "field_info": (3, "ProviderFieldInfo*"),
    },
    "ProviderFieldInfo": {"name": (1, "string"), "doc_string": (2, "string")},
    "ModuleExtensionInfo": {
        "extension_name": (1, "string"),
        "doc_string": (2, "string"),
        "tag_class": (3, "ModuleExtensionTagClassInfo*"),
    },
    "ModuleExtensionTagClassInfo": {
        "tag_name": (1, "string"),
        "doc_string": (2, "string"),
        "attribute": (3, "AttributeInfo*"),
    },
}
#: Types other than messages.
_TYPES = {
    "AttributeType": FieldDescriptorProto.TYPE_ENUM,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "string": FieldDescriptorProto.TYPE_STRING,
}


def read_module(data: bytes) -> dict[str, Any]:
    """Parse a ModuleInfo to a dictionary with the names of stardoc_output.proto, and defaults.

    Raises:
        DecodeError: the data is not a message.
    """
    message = GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.ModuleInfo"))()
    message.ParseFromString(data)
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def _pool() -> DescriptorPool:
    file = FileDescriptorProto(name="stardoc_output.proto", package=_PACKAGE, syntax="proto3")
    types = file.enum_type.add(name="AttributeType")
    for number, name in enumerate(_ATTRIBUTE_TYPES):
        types.value.add(name=name, number=number)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, declared) in fields.items():
            entry = message.field.add(name=field, number=number)
            many = declared.endswith("*")
            entry.label = entry.LABEL_REPEATED if many else entry.LABEL_OPTIONAL
            kind = declared.rstrip("*")
            entry.type = _TYPES.get(kind, FieldDescriptorProto.TYPE_MESSAGE)
            if entry.type in (entry.TYPE_ENUM, entry.TYPE_MESSAGE):
                entry.type_name = f".{_PACKAGE}.{kind}"
    pool = DescriptorPool()
    pool.Add(file)
    return pool
