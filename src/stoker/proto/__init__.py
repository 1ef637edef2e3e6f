"""The services of the gRPC listener: `.proto` files for clients in any language, and the modules made from them.

`tools/make_proto.py` makes the modules; a test fails when they are older than their file. They are loaded by the
listener only: Stoker's own client needs none of them.
"""
