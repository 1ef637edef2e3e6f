"""The protocol without sockets: frames, commands, replies. Client and server both use it; it knows neither."""
