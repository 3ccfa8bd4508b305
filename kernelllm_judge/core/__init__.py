"""The records that pass between the other folders, and the layout of a kernel module. Imports nothing else of the package."""
