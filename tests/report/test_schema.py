import json
from pathlib import Path

import jsonschema
import pytest

from pytest_kernelllm.report.schema import report_schema, verdict_schema

PUBLISHED = Path(__file__).parents[2] / "docs" / "schema"


@pytest.mark.parametrize(("name", "schema"), [("report", report_schema()), ("verdict", verdict_schema())])
def test_the_published_schema_is_what_the_records_say(name, schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    published = json.loads((PUBLISHED / f"{name}.json").read_text())
    assert published == schema, "run: python -m pytest_kernelllm.beside.passk.schema docs/schema"
