"""Other projects' forms of a problem and an answer, each translated to a pair that the judge reads."""
