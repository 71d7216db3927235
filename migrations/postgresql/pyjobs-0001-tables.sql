-- The tables of pyjobs. The rules that can be kept by a constraint or a key are kept here;
-- docs/design.md says which promise rests on which of them.
--
-- Names and keys are compared byte by byte (COLLATE "C"), as on every other database: claims search by them, and no index of
-- ours needs to be built anew when the collations of the operating system change.

-- What a column of `jobs` may hold is said by domains, not by CHECK: PostgreSQL reads each CHECK of a table anew for every
-- statement that writes to it, which made up half the cost of enqueueing one job.
CREATE DOMAIN jobs__name AS text COLLATE "C" CHECK (length(VALUE) BETWEEN 1 AND 190);
CREATE DOMAIN jobs__state AS text CHECK (VALUE IN ('scheduled', 'pending', 'running', 'done', 'dead', 'cancelled'));
CREATE DOMAIN jobs__outcome AS text CHECK (VALUE IN ('done', 'failed', 'released', 'snoozed', 'cancelled'));
CREATE DOMAIN jobs__reason AS text CHECK (VALUE IN ('exhausted', 'permanent', 'invalid_args', 'unknown_name', 'lost'));
CREATE DOMAIN jobs__attempts AS integer CHECK (VALUE >= 1);
CREATE DOMAIN jobs__timeout AS bigint CHECK (VALUE >= 1);

-- One concurrency bound: how many jobs of each of its buckets may run at once.
-- It outlives the definitions that name it, so that a bucket's bound can always be looked up.
CREATE TABLE jobs_groups (
    name   text COLLATE "C"  NOT NULL PRIMARY KEY CHECK (name <> '' AND strpos(name, ':') = 0),
    slots  integer           NOT NULL CHECK (slots >= 1),
    UNIQUE (name, slots)
);

-- What a job name stands for. The foreign key makes two limits in one group impossible (PJ008).
CREATE TABLE jobs_definitions (
    name               text COLLATE "C"  NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 190),
    queue              text COLLATE "C"  NOT NULL DEFAULT 'default' CHECK (length(queue) BETWEEN 1 AND 190),
    priority           smallint          NOT NULL DEFAULT 0,
    max_attempts       integer           NOT NULL DEFAULT 5 CHECK (max_attempts >= 1),
    timeout_ms         bigint            CHECK (timeout_ms >= 1),
    backoff_base_ms    bigint            NOT NULL DEFAULT 5000 CHECK (backoff_base_ms >= 0),
    backoff_factor     double precision  NOT NULL DEFAULT 4 CHECK (backoff_factor >= 1),
    backoff_max_ms     bigint            NOT NULL DEFAULT 3600000 CHECK (backoff_max_ms >= 0),
    backoff_jitter     double precision  NOT NULL DEFAULT 0.15 CHECK (backoff_jitter BETWEEN 0 AND 1),
    concurrency_group  text COLLATE "C",
    concurrency_limit  integer,
    concurrency_key    text              CHECK (length(concurrency_key) BETWEEN 1 AND 190),
    keep_done_ms       bigint            NOT NULL DEFAULT 86400000 CHECK (keep_done_ms >= 0),
    keep_dead_ms       bigint            CHECK (keep_dead_ms >= 0),
    CHECK ((concurrency_group IS NULL) = (concurrency_limit IS NULL)),
    CHECK (concurrency_key IS NULL OR concurrency_group IS NOT NULL),
    FOREIGN KEY (concurrency_group, concurrency_limit) REFERENCES jobs_groups (name, slots) ON UPDATE CASCADE
);

-- Whether any name is limited, and whether any leaves nothing behind: asked at each claim and settle.
CREATE INDEX jobs_definitions_limited ON jobs_definitions (name) WHERE concurrency_group IS NOT NULL;
CREATE INDEX jobs_definitions_fleeting ON jobs_definitions (name) WHERE keep_done_ms = 0;

-- A batch: its counters are advanced by the transaction that ends a job, under this row's lock.
CREATE TABLE jobs_batches (
    id                uuid         NOT NULL PRIMARY KEY,
    name              text,
    tenant            text         CHECK (length(tenant) BETWEEN 1 AND 190),
    callback          text,
    callback_args     text,
    callback_options  text,
    callback_id       uuid,
    total             integer      CHECK (total >= 0),
    done              integer      NOT NULL DEFAULT 0 CHECK (done >= 0),
    failed            integer      NOT NULL DEFAULT 0 CHECK (failed BETWEEN 0 AND done),
    opened_at         timestamptz  NOT NULL,
    sealed_at         timestamptz,
    finished_at       timestamptz,
    CHECK ((total IS NULL) = (sealed_at IS NULL)),
    CHECK (finished_at IS NULL OR sealed_at IS NOT NULL),
    CHECK (done <= total)
);

CREATE INDEX jobs_batches_finished ON jobs_batches (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_batches_sealed ON jobs_batches (sealed_at) WHERE sealed_at IS NOT NULL AND finished_at IS NULL;

-- One unit of work. `bucket` is what its concurrency limit counts by; `ring` spreads buckets evenly
-- over the integers, so that a claim can start its walk at a random one and be fair to all.
CREATE TABLE jobs (
    id             uuid              NOT NULL PRIMARY KEY,
    name           jobs__name        NOT NULL,
    queue          jobs__name        NOT NULL,
    state          jobs__state       NOT NULL,
    priority       smallint          NOT NULL,
    run_at         timestamptz       NOT NULL,
    bucket         text COLLATE "C",
    ring           integer           GENERATED ALWAYS AS (hashtext(bucket)) STORED,
    attempts       integer           NOT NULL DEFAULT 0,
    max_attempts   jobs__attempts    NOT NULL,
    timeout_ms     jobs__timeout,
    token          uuid,
    worker         text,
    lease_until    timestamptz,
    cancel_at      timestamptz,
    settled_token  uuid,
    settled_as     jobs__outcome,
    started_at     timestamptz,
    finished_at    timestamptz,
    dead_reason    jobs__reason,
    unique_key     text COLLATE "C",
    tenant         jobs__name,
    batch_id       uuid,
    enqueued_at    timestamptz       NOT NULL,
    args           text              NOT NULL,
    meta           text,
    CONSTRAINT jobs_running_is_held CHECK (num_nonnulls(token, worker, lease_until) = CASE state WHEN 'running' THEN 3 ELSE 0 END),
    CONSTRAINT jobs_terminal_is_finished CHECK ((finished_at IS NULL) = (state IN ('scheduled', 'pending', 'running'))),
    CONSTRAINT jobs_dead_has_reason CHECK ((dead_reason IS NULL) = (state <> 'dead')),
    -- One that runs has begun one; one that waits has one left.
    CONSTRAINT jobs_attempts_in_bounds CHECK (
        attempts BETWEEN (token IS NOT NULL)::integer AND max_attempts - (num_nonnulls(token, finished_at) = 0)::integer)
)
-- Each job leaves two dead rows: a share of a table that holds a million ended ones would be too many to wait for.
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- What a claim reads, in its order; nothing that is not claimable is ever in these three.
-- The line: every unlimited pending job.
CREATE INDEX jobs_line ON jobs (priority, run_at, id) WHERE state = 'pending' AND bucket IS NULL;
-- The same jobs by lane (queue and name), for a claim whose line is headed by work that is not for it.
CREATE INDEX jobs_lanes ON jobs (queue, name, priority, run_at, id) WHERE state = 'pending' AND bucket IS NULL;
-- Limited pending jobs, by bucket, so that a full bucket is stepped over in one probe.
CREATE INDEX jobs_limited ON jobs (queue, name, priority, ring, bucket, run_at, id) WHERE state = 'pending' AND bucket IS NOT NULL;
-- Future work, by the moment it falls due.
CREATE INDEX jobs_due ON jobs (run_at, id) WHERE state = 'scheduled';
-- Work in hand, by the claim that holds it. A rescue reads all of it, which is never much.
-- lease_until is left out on purpose: a heartbeat then changes no index.
CREATE INDEX jobs_held ON jobs (token) WHERE state = 'running';
-- Ended work, by the age at which it is pruned.
CREATE INDEX jobs_ended ON jobs (state, name, finished_at) WHERE state IN ('done', 'dead', 'cancelled');
CREATE INDEX jobs_of_batch ON jobs (batch_id) WHERE batch_id IS NOT NULL;

-- Who holds a unique key. The primary key is the uniqueness; enqueueing inserts here first.
-- A job never needs this table to be claimed, settled or rescued: those only delete from it.
CREATE TABLE jobs_keys (
    key     text COLLATE "C"  NOT NULL PRIMARY KEY CHECK (length(key) BETWEEN 1 AND 512),
    job_id  uuid              NOT NULL,
    kept    text              NOT NULL CHECK (kept IN ('active', 'row', 'ever')),
    since   timestamptz       NOT NULL
);

CREATE INDEX jobs_keys_job ON jobs_keys (job_id);
CREATE INDEX jobs_keys_since ON jobs_keys (since) WHERE kept = 'ever';

-- A permit of a bucket, taken by inserting it: (bucket, slot) can be held once.
CREATE TABLE jobs_slots (
    bucket    text COLLATE "C"  NOT NULL,
    slot      integer           NOT NULL CHECK (slot >= 0),
    job_id    uuid              NOT NULL UNIQUE,
    token     uuid              NOT NULL,
    taken_at  timestamptz       NOT NULL,
    PRIMARY KEY (bucket, slot)
);

-- The history of failed attempts, apart from the hot rows. No foreign key: each row of `jobs` that is written or deleted
-- would be looked at for it; jobs__remove, which alone deletes jobs, deletes their failures with one statement.
CREATE TABLE jobs_failures (
    id          bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id      uuid         NOT NULL,
    attempt     integer      NOT NULL CHECK (attempt >= 1),
    token       uuid         NOT NULL,
    worker      text         NOT NULL,
    kind        text         NOT NULL CHECK (kind IN ('error', 'timeout', 'invalid_args', 'unknown_name', 'lost')),
    type        text,
    message     text,
    stack       text,
    started_at  timestamptz  NOT NULL,
    failed_at   timestamptz  NOT NULL,
    UNIQUE (job_id, token)
);

CREATE TABLE jobs_schedules (
    name         text COLLATE "C"  NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 190),
    job          text              NOT NULL,
    cron         text,
    every_ms     bigint            CHECK (every_ms >= 1),
    timezone     text              NOT NULL DEFAULT 'UTC',
    args         text              NOT NULL DEFAULT '{}',
    options      text              NOT NULL DEFAULT '{}',
    source       text,
    enabled      boolean           NOT NULL DEFAULT true,
    next_run_at  timestamptz       NOT NULL,
    last_run_at  timestamptz,
    last_job_id  uuid,
    CHECK ((cron IS NULL) <> (every_ms IS NULL))
);

-- Live workers; `info` is the JSON each sends of itself (host, pid, version, queues, names, concurrency).
CREATE TABLE jobs_workers (
    id          text COLLATE "C"  NOT NULL PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 190),
    info        text              NOT NULL,
    started_at  timestamptz       NOT NULL,
    seen_at     timestamptz       NOT NULL,
    live_until  timestamptz       NOT NULL
);

CREATE TABLE jobs_paused (
    queue      text COLLATE "C"  NOT NULL PRIMARY KEY CHECK (length(queue) BETWEEN 1 AND 190),
    paused_at  timestamptz       NOT NULL
);

CREATE TABLE jobs_settings (
    name   text COLLATE "C"  NOT NULL PRIMARY KEY CHECK (name IN ('max_args_bytes', 'keep_keys_ms', 'notify')),
    value  text              NOT NULL
);
INSERT INTO jobs_settings (name, value) VALUES
    ('max_args_bytes', '524288'),
    ('keep_keys_ms', '31536000000'),
    ('notify', 'true');
