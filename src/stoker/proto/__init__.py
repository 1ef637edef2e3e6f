"""The services of the gRPC listener: `.proto` files for clients in any language, and the modules generated from them.

`tools/make_proto.py` generates the modules; a test fails if they are older than their file. Only the listener loads
them: Stoker's own client needs none of them.
"""
