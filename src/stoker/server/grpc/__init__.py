"""The gRPC listener: every command in a frame, typed calls for the common ones, and streams of work."""
