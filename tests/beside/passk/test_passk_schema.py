"""The published schema of a benchmark."""

import json
from pathlib import Path

import jsonschema

from pytest_kernelllm.beside.passk.schema import passk_schema

PUBLISHED = Path(__file__).parents[3] / "docs" / "schema" / "passk.json"


def test_the_published_schema_is_what_the_records_say():
    jsonschema.Draft202012Validator.check_schema(passk_schema())
    assert json.loads(PUBLISHED.read_text()) == passk_schema(), (
        "run: python -m pytest_kernelllm.beside.passk.schema docs/schema"
    )
