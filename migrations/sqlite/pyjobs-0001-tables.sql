-- The tables of pyjobs. The rules that can be kept by a constraint or a key are kept here;
-- docs/design.md says which promise rests on which of them.
--
-- They mirror the PostgreSQL tables column for column. Moments are whole milliseconds since the epoch, ids lower-case
-- text; STRICT holds every value to its type. The foreign keys take part only on a connection that asks for them, so
-- nothing rests on them: the routines keep the same rules.

-- One concurrency bound: how many jobs of each of its buckets may run at once.
-- It outlives the definitions that name it, so that a bucket's bound can always be looked up.
CREATE TABLE jobs_groups (
    name        TEXT     NOT NULL PRIMARY KEY CHECK (name <> '' AND instr(name, ':') = 0),
    slots       INTEGER  NOT NULL CHECK (slots >= 1),
    UNIQUE (name, slots)
) STRICT, WITHOUT ROWID;

-- What a job name stands for. The foreign key makes two limits in one group impossible (PJ008).
CREATE TABLE jobs_definitions (
    name               TEXT     NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 190),
    queue              TEXT     NOT NULL DEFAULT 'default' CHECK (length(queue) BETWEEN 1 AND 190),
    priority           INTEGER  NOT NULL DEFAULT 0 CHECK (priority BETWEEN -32768 AND 32767),
    max_attempts       INTEGER  NOT NULL DEFAULT 5 CHECK (max_attempts >= 1),
    timeout_ms         INTEGER  CHECK (timeout_ms >= 1),
    backoff_base_ms    INTEGER  NOT NULL DEFAULT 5000 CHECK (backoff_base_ms >= 0),
    backoff_factor     REAL     NOT NULL DEFAULT 4 CHECK (backoff_factor >= 1),
    backoff_max_ms     INTEGER  NOT NULL DEFAULT 3600000 CHECK (backoff_max_ms >= 0),
    backoff_jitter     REAL     NOT NULL DEFAULT 0.15 CHECK (backoff_jitter BETWEEN 0 AND 1),
    concurrency_group  TEXT,
    concurrency_limit  INTEGER,
    concurrency_key    TEXT     CHECK (length(concurrency_key) BETWEEN 1 AND 190),
    keep_done_ms       INTEGER  NOT NULL DEFAULT 86400000 CHECK (keep_done_ms >= 0),
    keep_dead_ms       INTEGER  CHECK (keep_dead_ms >= 0),
    CHECK ((concurrency_group IS NULL) = (concurrency_limit IS NULL)),
    CHECK (concurrency_key IS NULL OR concurrency_group IS NOT NULL),
    FOREIGN KEY (concurrency_group, concurrency_limit) REFERENCES jobs_groups (name, slots) ON UPDATE CASCADE
) STRICT, WITHOUT ROWID;

-- A batch: its counters are advanced by the transaction that ends a job.
CREATE TABLE jobs_batches (
    id                TEXT     NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    name              TEXT,
    tenant            TEXT     CHECK (length(tenant) BETWEEN 1 AND 190),
    callback          TEXT,
    callback_args     TEXT,
    callback_options  TEXT,
    callback_id       TEXT,
    total             INTEGER  CHECK (total >= 0),
    done              INTEGER  NOT NULL DEFAULT 0 CHECK (done >= 0),
    failed            INTEGER  NOT NULL DEFAULT 0 CHECK (failed BETWEEN 0 AND done),
    opened_at         INTEGER  NOT NULL,
    sealed_at         INTEGER,
    finished_at       INTEGER,
    CHECK ((total IS NULL) = (sealed_at IS NULL)),
    CHECK (finished_at IS NULL OR sealed_at IS NOT NULL),
    CHECK (done <= total)
) STRICT;

CREATE INDEX jobs_batches_finished ON jobs_batches (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_batches_sealed ON jobs_batches (sealed_at) WHERE sealed_at IS NOT NULL AND finished_at IS NULL;

-- One unit of work. `bucket` is what its concurrency limit counts by. (SQLite needs no `ring`: see jobs__turns.)
CREATE TABLE jobs (
    id             TEXT     NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    name           TEXT     NOT NULL CHECK (length(name) BETWEEN 1 AND 190),
    queue          TEXT     NOT NULL CHECK (length(queue) BETWEEN 1 AND 190),
    state          TEXT     NOT NULL CHECK (state IN ('scheduled', 'pending', 'running', 'done', 'dead', 'cancelled')),
    priority       INTEGER  NOT NULL CHECK (priority BETWEEN -32768 AND 32767),
    run_at         INTEGER  NOT NULL,
    bucket         TEXT,
    attempts       INTEGER  NOT NULL DEFAULT 0,
    max_attempts   INTEGER  NOT NULL CHECK (max_attempts >= 1),
    timeout_ms     INTEGER  CHECK (timeout_ms >= 1),
    token          TEXT,
    worker         TEXT,
    lease_until    INTEGER,
    cancel_at      INTEGER,
    settled_token  TEXT,
    settled_as     TEXT     CHECK (settled_as IN ('done', 'failed', 'released', 'snoozed', 'cancelled')),
    started_at     INTEGER,
    finished_at    INTEGER,
    dead_reason    TEXT     CHECK (dead_reason IN ('exhausted', 'permanent', 'invalid_args', 'unknown_name', 'lost')),
    unique_key     TEXT,
    tenant         TEXT     CHECK (length(tenant) BETWEEN 1 AND 190),
    batch_id       TEXT,
    enqueued_at    INTEGER  NOT NULL,
    args           TEXT     NOT NULL,
    meta           TEXT,
    CONSTRAINT jobs_running_is_held CHECK (
        CASE WHEN state = 'running' THEN token IS NOT NULL AND worker IS NOT NULL AND lease_until IS NOT NULL
                                    ELSE token IS NULL AND worker IS NULL AND lease_until IS NULL END),
    CONSTRAINT jobs_terminal_is_finished CHECK ((state IN ('done', 'dead', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT jobs_dead_has_reason CHECK ((state = 'dead') = (dead_reason IS NOT NULL)),
    CONSTRAINT jobs_attempts_in_bounds CHECK (
        CASE state WHEN 'running' THEN attempts BETWEEN 1 AND max_attempts
                   WHEN 'pending' THEN attempts BETWEEN 0 AND max_attempts - 1
                   WHEN 'scheduled' THEN attempts BETWEEN 0 AND max_attempts - 1
                   ELSE attempts BETWEEN 0 AND max_attempts END)
) STRICT;

-- What a claim reads, in its order; nothing that is not claimable is ever in these three.
-- The line: every unlimited pending job.
CREATE INDEX jobs_line ON jobs (priority, run_at, id) WHERE state = 'pending' AND bucket IS NULL;
-- The same jobs by lane (queue and name), for a claim whose line is headed by work that is not for it.
CREATE INDEX jobs_lanes ON jobs (queue, name, priority, run_at, id) WHERE state = 'pending' AND bucket IS NULL;
-- Limited pending jobs by lane, and in each by priority and bucket: a full bucket is stepped over in one probe, and a lane
-- that is not wanted is too, however many buckets wait in it.
CREATE INDEX jobs_limited ON jobs (queue, name, priority, bucket, run_at, id) WHERE state = 'pending' AND bucket IS NOT NULL;
-- Future work, by the moment it falls due.
CREATE INDEX jobs_due ON jobs (run_at, id) WHERE state = 'scheduled';
-- Work in hand, by the claim that holds it. A rescue reads all of it, which is never much.
-- lease_until is left out on purpose: a heartbeat then changes no index.
CREATE INDEX jobs_held ON jobs (token) WHERE state = 'running';
-- Ended work, by the age at which it is pruned.
CREATE INDEX jobs_ended ON jobs (state, name, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_of_batch ON jobs (batch_id) WHERE batch_id IS NOT NULL;

-- Who holds a unique key. The primary key is the uniqueness; enqueueing inserts here first.
-- A job never needs this table to be claimed, settled or rescued: those only delete from it.
CREATE TABLE jobs_keys (
    key     TEXT     NOT NULL PRIMARY KEY CHECK (length(key) BETWEEN 1 AND 512),
    job_id  TEXT     NOT NULL,
    kept    TEXT     NOT NULL CHECK (kept IN ('active', 'row', 'ever')),
    since   INTEGER  NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX jobs_keys_job ON jobs_keys (job_id);
CREATE INDEX jobs_keys_since ON jobs_keys (since) WHERE kept = 'ever';

-- A permit of a bucket, taken by inserting it: (bucket, slot) can be held once.
CREATE TABLE jobs_slots (
    bucket    TEXT     NOT NULL,
    slot      INTEGER  NOT NULL CHECK (slot >= 0),
    job_id    TEXT     NOT NULL UNIQUE,
    token     TEXT     NOT NULL,
    taken_at  INTEGER  NOT NULL,
    PRIMARY KEY (bucket, slot)
) STRICT, WITHOUT ROWID;

-- The history of failed attempts, apart from the hot rows.
CREATE TABLE jobs_failures (
    id          INTEGER  PRIMARY KEY,
    job_id      TEXT     NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    attempt     INTEGER  NOT NULL CHECK (attempt >= 1),
    token       TEXT     NOT NULL,
    worker      TEXT     NOT NULL,
    kind        TEXT     NOT NULL CHECK (kind IN ('error', 'timeout', 'invalid_args', 'unknown_name', 'lost')),
    type        TEXT,
    message     TEXT,
    stack       TEXT,
    started_at  INTEGER  NOT NULL,
    failed_at   INTEGER  NOT NULL,
    UNIQUE (job_id, token)
) STRICT;

CREATE TABLE jobs_schedules (
    name         TEXT     NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 190),
    job          TEXT     NOT NULL,
    cron         TEXT,
    every_ms     INTEGER  CHECK (every_ms >= 1),
    timezone     TEXT     NOT NULL DEFAULT 'UTC',
    args         TEXT     NOT NULL DEFAULT '{}',
    options      TEXT     NOT NULL DEFAULT '{}',
    source       TEXT,
    enabled      INTEGER  NOT NULL DEFAULT true CHECK (enabled IN (true, false)),
    next_run_at  INTEGER  NOT NULL,
    last_run_at  INTEGER,
    last_job_id  TEXT,
    CHECK ((cron IS NULL) <> (every_ms IS NULL))
) STRICT;

-- Live workers; `info` is the JSON each sends of itself (host, pid, version, queues, names, concurrency).
CREATE TABLE jobs_workers (
    id          TEXT     NOT NULL PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 190),
    info        TEXT     NOT NULL,
    started_at  INTEGER  NOT NULL,
    seen_at     INTEGER  NOT NULL,
    live_until  INTEGER  NOT NULL
) STRICT;

CREATE TABLE jobs_paused (
    queue      TEXT     NOT NULL PRIMARY KEY CHECK (length(queue) BETWEEN 1 AND 190),
    paused_at  INTEGER  NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE jobs_settings (
    name   TEXT  NOT NULL PRIMARY KEY CHECK (name IN ('max_args_bytes', 'keep_keys_ms', 'notify')),
    value  TEXT  NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO jobs_settings (name, value) VALUES
    ('max_args_bytes', '524288'),
    ('keep_keys_ms', '31536000000'),
    ('notify', 'true');

-- What the last routine answered: a trigger returns nothing, so the caller reads the answer here, through the views that
-- sql/sqlite/clock.sql lists, in the transaction of its call. Every routine that answers here empties it first.
CREATE TABLE jobs__replies (
    position  INTEGER  PRIMARY KEY,
    id        TEXT,
    answer    ANY,
    accepted  INTEGER
) STRICT;

-- Where the claims of a lane (queue and name) have got to among its buckets. The next one goes on from there, so that
-- buckets take turns. This is exact, which only one writer at a time can have so cheaply.
CREATE TABLE jobs__turns (
    queue   TEXT  NOT NULL,
    name    TEXT  NOT NULL,
    bucket  TEXT  NOT NULL,
    PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

-- What a claim has in mind while it makes up its mind: jobs that are not at the head of the line. Empty in between.
CREATE TABLE jobs__candidates (
    job       INTEGER  PRIMARY KEY,
    priority  INTEGER  NOT NULL,
    run_at    INTEGER  NOT NULL,
    id        TEXT     NOT NULL
) STRICT;
