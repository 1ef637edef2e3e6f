"""The modules beside the `.proto` files say what those files say."""

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from stoker.proto import stoker_pb2, stoker_pb2_grpc
from tools import make_proto

MODULES = {"stoker": (stoker_pb2, stoker_pb2_grpc)}


def described(name: str, into: Path) -> descriptor_pb2.FileDescriptorProto:
    """What protoc reads in a file today, whatever its release would make of it."""
    made = into / name
    assert protoc.main([*make_proto.PATHS, f"--descriptor_set_out={made}", f"stoker/proto/{name}.proto"]) == 0
    (found,) = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file
    found.ClearField("source_code_info")
    for message in found.message_type:  # protoc fills in the names that JSON has; the modules leave them out
        clear_json_names(message)
    return found


def clear_json_names(message: descriptor_pb2.DescriptorProto) -> None:
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        clear_json_names(nested)


def test_every_file_has_its_modules():
    assert {path.stem for path in make_proto.PROTO.glob("*.proto")} == set(make_proto.NAMES) == set(MODULES)


@pytest.mark.parametrize("name", make_proto.NAMES)
def test_the_messages_are_those_of_the_file(name: str, tmp_path: Path):
    ours = descriptor_pb2.FileDescriptorProto.FromString(MODULES[name][0].DESCRIPTOR.serialized_pb)
    assert ours == described(name, tmp_path), "run tools/make_proto.py"


@pytest.mark.parametrize("name", make_proto.NAMES)
def test_the_stubs_are_those_of_the_file(name: str):
    messages, stubs = MODULES[name]
    for service in messages.DESCRIPTOR.services_by_name.values():
        servicer = getattr(stubs, f"{service.name}Servicer")
        assert {method.name for method in service.methods} == {name for name in vars(servicer) if name[0] != "_"}


def test_the_tool_makes_all_that_is_there(tmp_path: Path):
    made = {path.name for path in make_proto.make(tmp_path)}
    assert made == {path.name for path in make_proto.PROTO.glob("*_pb2*.py*")}
