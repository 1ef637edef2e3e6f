"""What the contract has and the broker in Redis does not, and which tests need it.

`NOT_ACCEPTED` is exact: the suite fails if one of these is accepted after all, or if another command, field or choice
never was. `TESTS` names what is left out for it: a whole file, a test, or the cases of a test that have this in their
names.
"""

from stoker.model.filters import FIELDS
from tests.conformance.dialect_gaps import Entry, is_meant

BROKERS = ("redis", "valkey", "redis-served")

NO_TRANSACTIONS = "a transaction needs the server on its own journal"
NO_CLAIMS = "a claim needs the server on its own journal"
ONE_SLOT = "a tenant is one hash slot, so it has one shard"
OWN_IDS = "each tenant counts its ids by itself: two tenants may have the same"
NO_PAYLOADS = "the log in Redis has the heads of records, no payloads"
OWN_LOGS = "each tenant has a log of its own"
NOT_SEARCHED = "the scripts search by what a job was pushed with, and by its state"
NOT_GROUPED = "the scripts know no fingerprints"
NO_BULK = "a bulk operation needs steps that a timer runs"
NOT_DELETED = "the scripts forget ended jobs by queue and age, and dead letters by id"
NOT_MEASURED = "the scripts count jobs, and measure neither waits nor runs"

NOT_ACCEPTED: dict[str, tuple[str, ...]] = {
    NO_TRANSACTIONS: (
        "Stage",
        "Publish",
        "Abort",
        "Limits.stages_per_transaction_max",
        "Settings.stage_ttl_ms",
        "Settings.transaction_ttl_ms",
    ),
    NO_CLAIMS: ("AckClaim", "ReleaseClaim", "ExtendClaim", "Pull.claim", "Settings.claim_ttl_ms"),
    ONE_SLOT: ("ReadEvents.shard", "ReadRecords.shard"),
    NO_PAYLOADS: ("ReadRecords.payloads",),
    OWN_LOGS: ("ReadRecords.tenants",),
    NOT_MEASURED: ("GetTimings", "GetHistory", "GetTrends"),
    NOT_GROUPED: ("GetDeadGroups",),
    NOT_DELETED: ("DeleteJob",),
    NO_BULK: ("StartBulk", "GetBulk", "ListBulks", "StopBulk", *(f"JobFilter.{name}" for name in FIELDS), "JobFilter"),
    NOT_SEARCHED: (
        "CountJobs",
        *(f"Browse.{name}" for name in ("worker", "priority", "attempts_from", "ended_from", "ended_before")),
        *(f"Browse.{name}" for name in ("parent_id", "reason", "fingerprint", "text")),
    ),
}

TESTS: dict[str, tuple[Entry, ...]] = {
    NO_TRANSACTIONS: (
        "test_transactions.py",
        "test_claims_and_transactions",
        "test_a_stage_may_not_prepare_one_queue_too_many",
        "test_a_transaction_spans_shards",
        "test_an_abort_holds_in_every_shard",
        "test_one_stage_may_hold_jobs_of_several_shards",
        "test_staged_payloads_count_once_they_are_published",
        "test_staged_payloads_keep_their_codec",
        ("test_control_stays_with_the_tenant", "Abort"),
        ("test_every_option_arrives_on_every_way_in", "by_transaction"),
        ("test_all_options_at_once_survive_a_retry_a_release_and_a_death", "by_transaction"),
        ("test_names_of_requests_claims_and_transactions_may_be_so_long", "transaction="),
        ("test_a_command_that_makes_no_sense_is_refused", "transaction="),
    ),
    NO_CLAIMS: (
        "test_claims.py",
        "test_a_claim_brings_nothing_new_from_shards_it_had_no_jobs_in",
        "test_a_claim_holds_jobs_of_all_shards_in_id_order",
        "test_results_of_a_claim_keep_their_codec",
        ("test_a_command_that_makes_no_sense_is_refused", "Claim(claim="),
        ("test_a_command_that_makes_no_sense_is_refused", "claim='ccc"),
        ("test_names_of_requests_claims_and_transactions_may_be_so_long", "claim='x"),
        ("test_names_of_requests_claims_and_transactions_may_be_so_long", "Pull(queues="),
    ),
    ONE_SLOT: (
        "test_a_job_may_wait_for_a_job_of_another_shard",
        "test_a_queues_home_depends_on_the_tenant_and_does_not_change",
        "test_a_workflow_over_several_shards",
        "test_an_id_names_its_shard_and_grows_inside_it",
        "test_every_shard_has_events_of_its_own",
        "test_every_shard_has_records_of_its_own",
    ),
    OWN_IDS: (
        "test_a_foreign_job_counts_as_completed_when_depended_on",
        "test_a_request_key_is_the_queues_and_the_tenants_own",
        "test_ids_that_are_no_dead_letters_are_not_found",
        "test_settling_somebody_elses_jobs_settles_nothing",
        "test_the_same_name_is_two_queues",
    ),
    NO_PAYLOADS: ("test_payloads_stay_behind_unless_asked_for",),
    OWN_LOGS: ("test_one_pass_brings_the_records_of_several_tenants",),
    NOT_SEARCHED: ("test_searching.py",),
    NO_BULK: ("test_bulk.py",),
    NOT_GROUPED: ("test_dead_groups.py",),
    NOT_DELETED: ("test_deleting.py",),
    NOT_MEASURED: ("test_timings.py", "test_history.py"),
}


def is_left_out(broker: str, file: str, test: str, case: str) -> bool:
    """Whether a test needs what the broker in Redis does not have."""
    return broker in BROKERS and any(is_meant(entry, file, test, case) for group in TESTS.values() for entry in group)


def not_accepted() -> set[str]:
    return {name for group in NOT_ACCEPTED.values() for name in group}
