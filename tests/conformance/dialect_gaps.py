"""What the contract has and flashQ's dialect has no words for, and which tests need it.

The first two tables are exact: the suite fails if one of their commands could be said after all, or if another command,
or an option of a job, never was. The others name the tests that are left out for it: a whole file, a test, or the cases
of a test that have this in their names.
"""

STRANGERS = "strangers-"
REST = "strangers-rest"

NOT_SAID: dict[str, tuple[str, ...]] = {
    "flashQ has no transactions": ("Stage", "Publish", "Abort"),
    "the log as it is stored is nobody's dialect": ("ReadRecords",),
    "a claim is given to a pull; what becomes of its jobs is said of the jobs": (
        "AckClaim",
        "ReleaseClaim",
        "ExtendClaim",
    ),
    "only a schedule marks its jobs": ("Options.schedule", "Options.slot"),
    "LISTQUEUES, QUEUE and TIMINGS say it": ("GetQueues",),
    "HISTORY says it of one queue": ("GetTrends",),
    "flashQ deletes by queue and age, and dead letters by id": ("DeleteJob",),
}
NOT_SAID_BY_REST: dict[str, tuple[str, ...]] = {
    "keys and values have no paths": (
        "KvSet",
        "KvGet",
        "KvGetMany",
        "KvSetMany",
        "KvDelete",
        "KvExists",
        "KvExpire",
        "KvTtl",
        "KvKeys",
        "KvIncrement",
    ),
}

Entry = str | tuple[str, str]

TESTS: dict[str, tuple[Entry, ...]] = {
    "the log as it is stored is nobody's dialect": ("test_records.py", "test_every_shard_has_records_of_its_own"),
    "flashQ has no transactions": (
        "test_transactions.py",
        "test_a_claim_over_several_queues",
        "test_claims_and_transactions",
        "test_a_level_that_does_not_exist_is_refused_and_nothing_is_pushed",
        "test_a_push_gets_the_level_that_it_asks_for_as_far_as_the_broker_has_it",
        "test_a_stage_may_not_prepare_one_queue_too_many",
        "test_a_staged_job_may_depend_on_a_later_one",
        "test_a_transaction_spans_shards",
        "test_an_abort_holds_in_every_shard",
        "test_control_stays_with_the_tenant",
        "test_one_stage_may_hold_jobs_of_several_shards",
        "test_staged_payloads_count_once_they_are_published",
        "test_staged_payloads_keep_their_codec",
        "test_the_number_of_stages_is_limited",
        "test_transactions_are_the_tenants_own",
        ("test_every_option_arrives_on_every_way_in", "by_transaction"),
        ("test_all_options_at_once_survive_a_retry_a_release_and_a_death", "by_transaction"),
        ("test_names_of_requests_claims_and_transactions_may_be_so_long", "transaction="),
        ("test_a_command_that_makes_no_sense_is_refused", "transaction="),
    ),
    "LISTQUEUES, QUEUE and TIMINGS say it": ("test_queue_pages.py", "test_a_page_of_queues_has_the_timings_of_each"),
    "flashQ deletes by queue and age, and dead letters by id": ("test_deleting.py",),
    "HISTORY says it of one queue": (
        "test_queues_that_were_just_made_have_no_trends",
        ("test_a_range_that_makes_no_sense_is_refused", "GetTrends"),
    ),
    "a heartbeat of flashQ renews": ("test_a_look_at_leases_renews_nothing_and_tells_what_a_renewal_would",),
    "a release of flashQ has no note": ("test_a_release_may_say_why", "test_a_note_is_cut_where_an_error_would_be"),
    "what becomes of a claim's jobs is said of the jobs": (
        "test_a_claim_brings_nothing_new_from_shards_it_had_no_jobs_in",
        "test_a_claim_holds_jobs_of_all_shards_in_id_order",
        "test_a_claim_is_acknowledged_with_results",
        "test_a_claim_that_was_never_made_is_not_found",
        "test_a_released_claim_gives_its_jobs_and_attempts_back",
        "test_a_result_for_a_job_outside_the_claim_settles_nothing_of_it",
        "test_acknowledging_a_claim_takes_what_is_left_of_it",
        "test_acknowledging_twice_is_acknowledging_once",
        "test_an_extended_claim_keeps_its_jobs",
        "test_an_extended_claim_names_its_cancelled_jobs",
        "test_nobody_settles_a_foreign_claim",
        "test_results_of_a_claim_keep_their_codec",
        ("test_a_command_that_makes_no_sense_is_refused", "Claim(claim="),
    ),
    "a push that may be sent again has a `request_key` here": ("test_sending.py",),
    "the name of a schedule is its own: given to another queue, it moves there": (
        "test_cron_with_seconds_and_with_names",
        "test_places_in_a_template_are_filled_in",
        "test_schedules_are_listed_in_the_order_of_queues_and_names",
        "test_schedules_of_all_shards_come_at_their_time",
        "test_a_tenant_has_so_many_schedules_and_no_more",
    ),
    "flashQ calls the fields of a schedule otherwise": ("test_a_bad_schedule_is_refused_whole_and_its_field_is_named",),
    "only a schedule marks its jobs": (
        ("test_every_option_arrives_on_every_way_in", "schedule"),
        ("test_every_option_arrives_on_every_way_in", "slot"),
        ("test_values_at_the_edge_are_taken", "schedule"),
        ("test_values_at_the_edge_are_taken", "slot"),
        ("test_a_bad_option_is_refused_on_every_way_in", "schedule-"),
        ("test_a_bad_option_is_refused_on_every_way_in", "slot-"),
    ),
    "a payload that claims to be JSON or MessagePack is sent as the value that it is, and must be one": (
        "test_a_codec_does_not_change_the_order",
        "test_a_new_payload_may_bring_a_new_codec",
        "test_a_new_payload_without_a_codec_keeps_the_one_before",
        "test_a_value_is_there_until_it_is_deleted",
        "test_another_codec_for_one_of_a_batch_leaves_the_others_alone",
        "test_results_of_a_batch_keep_their_codec_and_missing_ones_have_none",
        "test_setting_again_replaces_everything",
        "test_what_is_no_whole_number_cannot_be_counted",
        ("test_every_option_arrives_on_every_way_in", "codec"),
        "test_all_options_at_once_survive_a_retry_a_release_and_a_death",
    ),
    "which codec a result or a kept value has is not told": (
        "test_a_result_keeps_its_codec",
        "test_partial_results_keep_their_codecs",
        "test_counting_keeps_the_codec",
        "test_many_are_set_at_once",
    ),
    "`null` means that nothing is said, and a text is no bytes": (
        ("test_a_bad_option_is_refused_on_every_way_in", "-None"),
        ("test_a_bad_option_is_refused_on_every_way_in", "-b'"),
        "test_an_unknown_codec_is_refused",
        "test_options_that_are_no_options_are_refused",
        "test_a_refused_command_makes_no_event",
        "test_a_payload_that_is_no_bytes_is_refused",
        "test_a_new_payload_keeps_to_the_limit",
        "test_what_is_malformed_is_refused",
    ),
    "0 means what is there if nothing is said": (
        ("test_a_bad_option_is_refused_on_every_way_in", "lease_ms-0"),
        ("test_values_at_the_edge_are_taken", "keep_completed_count"),
        ("test_kept_for_nothing_it_is_forgotten_at_once", "keep_completed_count"),
        "test_live_jobs_are_never_forgotten",
        ("test_a_command_that_makes_no_sense_is_refused", "SetRateLimit("),
        ("test_a_command_that_makes_no_sense_is_refused", "Clean("),
        ("test_a_command_that_makes_no_sense_is_refused", "ListDead("),
    ),
    "whoever wants to wait or to see more than he may gets as much as he may": (
        "test_a_page_is_limited",
        "test_waiting_longer_than_the_limit_is_refused",
        ("test_a_command_that_makes_no_sense_is_refused", "wait_ms=600001"),
        ("test_a_command_that_makes_no_sense_is_refused", "Browse("),
    ),
    "nothing to do is no mistake": (
        "test_an_empty_batch_is_refused",
        ("test_a_command_that_makes_no_sense_is_refused", "Ack(ids=[], "),
        ("test_a_command_that_makes_no_sense_is_refused", "Fail(ids=[], "),
        ("test_a_command_that_makes_no_sense_is_refused", "PushBatch(queue='q', payloads=["),
    ),
    "each job of a batch has its options, and each failure its request": (
        "test_bad_options_for_all_refuse_the_batch_whole",
        ("test_tokens_must_be_as_many_as_jobs", "Fail"),
        ("test_tokens_and_results_must_be_as_many_as_jobs", "Fail"),
        ("test_a_command_that_makes_no_sense_is_refused", "Fail(ids=[64], tokens=[1, 2]"),
    ),
    "jobs come newest first; another order is the client's own work": ("test_a_page_is_bounded_in_bytes",),
    "a plain id is a dependency": (("test_a_bad_option_is_refused_on_every_way_in", "depends_on-(64,)"),),
    "of a job that did not end well, and is forgotten, only the text of an error tells": (
        "test_waiting_is_answered_for_a_job_that_is_forgotten_at_its_end",
    ),
}
REST_TESTS: dict[str, tuple[Entry, ...]] = {
    "keys and values have no paths": (
        "test_kv.py",
        "test_entries_are_neither_queues_nor_jobs_nor_events",
        "test_no_client_can_name_the_tenant_of_the_system",
    ),
    "a path names one queue": (
        "test_a_bad_queue_name_is_refused",
        "test_a_call_that_is_refused_is_refused_in_every_shard",
        "test_a_cancelled_workflow_starts_nothing_more",
        "test_a_group_belongs_to_its_queue",
        "test_a_paused_queue_gives_nothing_and_takes_everything",
        "test_a_pull_from_no_queue_is_refused",
        ("test_a_command_that_makes_no_sense_is_refused", "Pull(queues=[], "),
        "test_a_pull_may_name_so_many_queues",
        "test_a_pull_over_several_queues_waits_for_the_first_of_them",
        "test_a_pull_over_shards_has_one_token_and_keeps_the_order_of_queues",
        "test_a_pull_over_shards_waits_for_all_of_them",
        "test_a_queue_that_nobody_knows_is_empty_and_stays_unknown",
        "test_a_rate_limit_bounds_one_queue_only",
        "test_a_step_starts_when_all_jobs_of_the_steps_before_it_have_completed",
        "test_an_empty_answer_names_the_earliest_due_time",
        "test_failures_are_answered_in_the_order_asked",
        "test_jobs_of_several_queues_can_be_acknowledged_together",
        "test_one_queue_at_its_limit_does_not_stop_the_next_one",
        "test_one_tenant_fills_nobody_elses_slots_or_buckets",
        "test_queues_are_emptied_in_the_order_given",
        "test_several_queues_share_the_bytes_of_a_delivery",
        "test_the_order_is_the_pulls_not_that_of_names_or_pushes",
    ),
    "a path names one job": (
        "test_tokens_must_be_as_many_as_jobs",
        "test_tokens_and_results_must_be_as_many_as_jobs",
        ("test_a_command_that_makes_no_sense_is_refused", "Release(ids="),
        ("test_a_command_that_makes_no_sense_is_refused", "Extend(ids="),
    ),
    "a header has one line of plain text": ("test_a_bad_tenant_name_is_refused",),
    "a path has no empty part, and a number in it is a text": (
        "test_a_bad_queue_name_is_refused_by_control",
        "test_what_is_no_id_is_refused",
    ),
}


def is_left_out(broker: str, file: str, test: str, case: str) -> bool:
    """Whether a test needs what a broker's client cannot say."""
    if not broker.startswith(STRANGERS):
        return False
    tables = (TESTS, REST_TESTS) if broker == REST else (TESTS,)
    return any(is_meant(entry, file, test, case) for table in tables for group in table.values() for entry in group)


def is_meant(entry: Entry, file: str, test: str, case: str) -> bool:
    name, part = (entry, "") if isinstance(entry, str) else entry
    return name in (file, test) and part in case


def not_said(broker: str) -> set[str]:
    """The commands that a broker's client cannot say."""
    tables = (NOT_SAID, NOT_SAID_BY_REST) if broker == REST else (NOT_SAID,)
    return {name for table in tables for group in table.values() for name in group}
