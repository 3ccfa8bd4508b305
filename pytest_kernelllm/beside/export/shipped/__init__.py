"""Files that are copied into every export, as are parts of the runtime; only their imports are changed.

They import only torch and the standard library, so that an export does not need this package.
"""
