"""Candidates of our own writing that the judge is measured by: cheats it must refuse, honest ones it must not."""
