"""All cases of the corpus together."""

from tests.corpus import (
    chunks,
    codings,
    fields,
    lengths,
    lines,
    pipelines,
    response_framing,
    response_lines,
    targets,
)

REQUESTS = [case for family in (chunks, codings, fields, lengths, lines, pipelines, targets) for case in family.CASES]
ANSWERS = [case for family in (response_framing, response_lines) for case in family.CASES]
