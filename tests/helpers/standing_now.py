"""The versions that a verdict names which was given today."""

from kernelllm_judge.standing import CHANGES, versions

NOW = versions(change.name for change in CHANGES)
