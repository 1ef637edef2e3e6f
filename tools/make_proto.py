"""Makes the modules beside `src/stoker/proto/*.proto` from those files, with grpcio-tools.

Run it after editing one of them: `python tools/make_proto.py`. A test fails when they are not up to date.
"""

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
PROTO = SOURCE / "stoker" / "proto"
NAMES = ("stoker",)
PATHS = ("protoc", f"--proto_path={SOURCE}", f"--proto_path={files('grpc_tools') / '_proto'}")


def make(into: Path) -> list[Path]:
    """Write the modules of all files under `into`. Returns their paths below it."""
    from grpc_tools import protoc

    arguments = [
        *PATHS,
        f"--python_out={into}",
        f"--pyi_out={into}",
        f"--grpc_python_out={into}",
        *(f"stoker/proto/{name}.proto" for name in NAMES),
    ]
    if protoc.main(arguments) != 0:
        sys.exit("protoc found errors")
    return sorted(path.relative_to(into) for path in into.rglob("*_pb2*.py*"))


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        for path in make(Path(made)):
            (SOURCE / path).write_bytes((Path(made) / path).read_bytes())


if __name__ == "__main__":
    main()
