"""Times, durations, paths and answers."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from laneway import types
from laneway.model import encode, format_time, parse_time, query_values, segment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2030-01-01T08:00:00Z", datetime(2030, 1, 1, 8, tzinfo=timezone.utc)),
        ("2030-01-01T08:00:00.5Z", datetime(2030, 1, 1, 8, 0, 0, 500_000, tzinfo=timezone.utc)),
        ("2030-01-01T08:00:00.123456789z", datetime(2030, 1, 1, 8, 0, 0, 123_456, tzinfo=timezone.utc)),
        ("2030-01-01T08:00:00+02:00", datetime(2030, 1, 1, 6, tzinfo=timezone.utc)),
    ],
)
def test_times_of_rfc_3339_are_read(text: str, expected: datetime) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize("text", ["", "2030-01-01", "2030-01-01T08:00:00", "now"])
def test_other_texts_are_not_times(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text)


def test_requests_take_times_and_durations() -> None:
    body = {"deadline": datetime(2030, 1, 1, tzinfo=timezone.utc), "timeout": timedelta(seconds=1.5)}
    assert encode(body) == b'{"deadline":"2030-01-01T00:00:00Z","timeout":"1500ms"}'
    assert format_time("2030-01-01T00:00:00Z") == "2030-01-01T00:00:00Z"
    with pytest.raises(TypeError, match="set is not JSON"):
        encode({"payload": {1, 2}})
    with pytest.raises(ValueError):
        encode(float("nan"))


def test_queries_repeat_lists_and_leave_out_what_has_no_value() -> None:
    query = {"state": ["queued", "running"], "lane": None, "all": True, "wait": timedelta(seconds=2), "limit": 3}
    expected = [("state", "queued"), ("state", "running"), ("all", "true"), ("wait", "2000ms"), ("limit", "3")]
    assert query_values(query) == expected


def test_names_in_paths_are_encoded() -> None:
    assert segment("agent:a7/chat") == "agent%3Aa7%2Fchat"
    assert (segment("reset"), segment("..")) == ("%72%65%73%65%74", "%2E%2E")


def test_answers_ignore_fields_that_are_new_and_fill_in_those_that_are_left_out() -> None:
    data = {
        "id": "j", "state": "queued", "kind": "k", "agent": "a", "lane": "main", "tenant": "t", "priority": 0,
        "attempt": 0, "failures": 0, "losses": 0, "created_at": "2030-01-01T00:00:00Z", "invented": {"x": 1},
        "warnings": [{"code": "unserved_kind", "message": "m"}],
    }  # fmt: skip
    job = types.Job.from_json(data)
    assert (job.tags, job.keys, job.existing, job.error, job.result) == ([], {}, False, None, None)
    assert job.warnings[0].message == "m"
    assert job.created_at.year == 2030
