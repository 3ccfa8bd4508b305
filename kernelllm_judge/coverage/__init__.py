"""The decisions of a candidate's Python code, and which of their outcomes were seen. No rule asks for them yet."""
