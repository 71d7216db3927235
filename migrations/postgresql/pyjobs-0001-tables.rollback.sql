DROP TABLE
    jobs_failures,
    jobs,
    jobs_definitions,
    jobs_groups,
    jobs_batches,
    jobs_keys,
    jobs_slots,
    jobs_schedules,
    jobs_workers,
    jobs_paused,
    jobs_settings;

DROP DOMAIN jobs__name, jobs__state, jobs__outcome, jobs__reason, jobs__attempts, jobs__timeout;
