"""docs/security.md names the test of each promise: every one exists."""

from __future__ import annotations

import re

from tests.support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "security.md").read_text()
AWAITED = {
    *("test_a_relay_cannot_insert_a_message", "test_a_relay_cannot_repeat_a_line_of_another_connection"),
    "test_a_line_that_is_not_the_next_line_of_the_peer_is_not_opened",
    "test_an_answer_from_another_address_than_the_hubs_is_reported",
    "test_neither_side_says_what_job_it_belongs_to_before_the_proofs",
    "test_a_hub_without_proof_cannot_fill_the_logs_of_members",
    "test_a_gang_with_certificates_sends_nothing_in_plain_text",
    *("test_certificates_of_another_authority_are_refused_on_both_sides", "test_new_connections_use_new_files"),
    *("test_a_job_is_complete_under_each_limit", "test_a_pod_without_file_descriptors_says_so"),
    "test_a_training_is_complete_although_no_process_and_no_thread_can_be_started_any_more",
    "test_a_job_whose_last_pass_was_cut_by_a_full_volume_is_not_complete",
    "test_a_job_whose_mark_does_not_fit_on_the_volume_is_not_complete",
}


def test_every_test_that_the_page_names_exists() -> None:
    places = [REPOSITORY / name for name in set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))]
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    defined = {name for path in places if path.exists() for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert named
    assert named - defined <= AWAITED


def test_every_promise_has_a_test() -> None:
    rows = re.findall(r"^\| (?!promise|field|---)(.+) \|$", PAGE, re.MULTILINE)
    assert rows
    assert [row for row in rows if not re.search("`(tests/|make fuzz)", row)] == []
