"""Remote workers: their protocol, the waits of the server, and the store over HTTP."""
