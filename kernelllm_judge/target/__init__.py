"""How a target is built and called: the class is imported, and its cases become inputs and domains."""
