"""Language models: text in, texts out, on this machine or behind an endpoint."""
