"""Routes, one module per resource: the client's operations under URLs."""
