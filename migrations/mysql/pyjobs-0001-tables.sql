-- transactional: false
--
-- The tables of pyjobs, for MySQL 8.0.17+ and MariaDB 10.6+. The rules that can be kept by a constraint or a key are kept here;
-- docs/design.md says which promise rests on which of them.
--
-- They mirror the PostgreSQL tables column for column. DDL commits as it goes here: each statement can be run again, so that a migration
-- which stopped half way is finished by the next run. Moments are DATETIME(6) in UTC (a TIMESTAMP would follow the session's time zone). Ids and
-- tokens are lower-case text. Names are compared exactly: the collation is the one of each server that pads nothing with spaces, where
-- utf8mb4_bin would take "a " for "a". (MariaDB passes over what is said to MySQL 5.7 and later; a MySQL before 8.0.17 knows no such
-- collation, and so refuses the first table.) Keys and buckets, which are longer than an index of text may be, hold the UTF-8 bytes.
--
-- InnoDB has no partial indexes. What a claim reads stands behind `stage`, which is NULL for a job that nobody waits for: so an ended
-- job moves in none of the indexes of waiting work, and lies behind their heads, never in between. Few indexes, since each one that names
-- `stage` or `token` is written at each claim.

-- (First, since a row is committed by the DDL that follows it.)
CREATE TABLE IF NOT EXISTS jobs_settings (
    name   VARCHAR(190)  NOT NULL PRIMARY KEY CHECK (name IN ('max_args_bytes', 'keep_keys_ms', 'notify')),
    value  VARCHAR(190)  NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;

-- Who was given which role. The grants themselves go with the routines whenever these are replaced, and are given again by this.
CREATE TABLE IF NOT EXISTS jobs__grants (
    principal  VARCHAR(190)  NOT NULL,
    role       VARCHAR(8)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (principal, role)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;

INSERT IGNORE INTO jobs_settings (name, value) VALUES
    ('max_args_bytes', '524288'),
    ('keep_keys_ms', '31536000000'),
    ('notify', 'true');

-- One concurrency bound: how many jobs of each of its buckets may run at once.
-- It outlives the definitions that name it, so that a bucket's bound can always be looked up.
CREATE TABLE IF NOT EXISTS jobs_groups (
    name        VARCHAR(190)  NOT NULL PRIMARY KEY CHECK (name <> '' AND INSTR(name, ':') = 0),
    slots       INT           NOT NULL CHECK (slots >= 1),
    UNIQUE KEY jobs_groups_slots (name, slots)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;

-- What a job name stands for. The foreign key makes two limits in one group impossible (PJ008).
-- (No ON UPDATE CASCADE: MySQL allows no CHECK on a column that a cascade may write.)
CREATE TABLE IF NOT EXISTS jobs_definitions (
    name               VARCHAR(190)  NOT NULL PRIMARY KEY CHECK (name <> ''),
    queue              VARCHAR(190)  NOT NULL DEFAULT 'default' CHECK (queue <> ''),
    priority           SMALLINT      NOT NULL DEFAULT 0,
    max_attempts       INT           NOT NULL DEFAULT 5 CHECK (max_attempts >= 1),
    timeout_ms         BIGINT        CHECK (timeout_ms >= 1),
    backoff_base_ms    BIGINT        NOT NULL DEFAULT 5000 CHECK (backoff_base_ms >= 0),
    backoff_factor     DOUBLE        NOT NULL DEFAULT 4 CHECK (backoff_factor >= 1),
    backoff_max_ms     BIGINT        NOT NULL DEFAULT 3600000 CHECK (backoff_max_ms >= 0),
    backoff_jitter     DOUBLE        NOT NULL DEFAULT 0.15 CHECK (backoff_jitter BETWEEN 0 AND 1),
    concurrency_group  VARCHAR(190),
    concurrency_limit  INT,
    concurrency_key    VARCHAR(190)  CHECK (concurrency_key <> ''),
    keep_done_ms       BIGINT        NOT NULL DEFAULT 86400000 CHECK (keep_done_ms >= 0),
    keep_dead_ms       BIGINT        CHECK (keep_dead_ms >= 0),
    CHECK ((concurrency_group IS NULL) = (concurrency_limit IS NULL)),
    CHECK (concurrency_key IS NULL OR concurrency_group IS NOT NULL),
    KEY jobs_definitions_group (concurrency_group, concurrency_limit),
    CONSTRAINT jobs_definitions_limit FOREIGN KEY (concurrency_group, concurrency_limit) REFERENCES jobs_groups (name, slots)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;

-- A batch: its counters are advanced by the transaction that ends a job, under this row's lock.
-- jobs_batches_finished serves two: what is to be pruned by its moment, and, where that is NULL, what is sealed and not finished.
CREATE TABLE IF NOT EXISTS jobs_batches (
    id                CHAR(36)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY CHECK (CHAR_LENGTH(id) = 36),
    name              VARCHAR(190),
    tenant            VARCHAR(190)  CHECK (tenant <> ''),
    callback          VARCHAR(190),
    callback_args     LONGTEXT,
    callback_options  LONGTEXT,
    callback_id       CHAR(36)      CHARACTER SET ascii COLLATE ascii_bin,
    total             INT           CHECK (total >= 0),
    done              INT           NOT NULL DEFAULT 0 CHECK (done >= 0),
    failed            INT           NOT NULL DEFAULT 0,
    opened_at         DATETIME(6)   NOT NULL,
    sealed_at         DATETIME(6),
    finished_at       DATETIME(6),
    CHECK (failed BETWEEN 0 AND done),
    CHECK ((total IS NULL) = (sealed_at IS NULL)),
    CHECK (finished_at IS NULL OR sealed_at IS NOT NULL),
    CHECK (done <= total),
    KEY jobs_batches_finished (finished_at, sealed_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;

-- The door of a batch: how many jobs have gone in, and whether it is shut. Apart from the counters, because whoever enqueues holds this
-- row until the end of a transaction that may be long, and whoever ends a job of the batch must not wait for that.
CREATE TABLE IF NOT EXISTS jobs__doors (
    batch_id  CHAR(36)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    joined    INT       NOT NULL DEFAULT 0,
    shut      BOOLEAN   NOT NULL DEFAULT FALSE,
    CONSTRAINT jobs__doors_batch FOREIGN KEY (batch_id) REFERENCES jobs_batches (id) ON DELETE CASCADE
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;

-- One unit of work. `bucket` is what its concurrency limit counts by; `ring` spreads buckets evenly, so that a claim can start its
-- walk at a random one, and stands for the bucket in an index, where its 571 characters would not fit.
--
-- `stage` says in which line a waiting job stands: 'line' pending and unlimited, 'limited' pending in a bucket.
--   jobs_line   every unlimited pending job, in the order of claiming
--   jobs_lanes  pending jobs by lane (queue and name); limited ones by priority and bucket, so that a full bucket is stepped over in one probe
--   jobs_due    future work by the moment it falls due; NULL for all other
--   jobs_held   work in hand by the claim that holds it. lease_until is left out on purpose: a heartbeat then changes no index
--   jobs_ended  ended work by the age at which it is pruned; NULL for all other
-- Each ends with the id, as every secondary index of InnoDB does.
CREATE TABLE IF NOT EXISTS jobs (
    id             CHAR(36)         CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY CHECK (CHAR_LENGTH(id) = 36),
    name           VARCHAR(190)     NOT NULL CHECK (name <> ''),
    queue          VARCHAR(190)     NOT NULL CHECK (queue <> ''),
    state          VARCHAR(9)       CHARACTER SET ascii COLLATE ascii_bin NOT NULL
                                    CHECK (state IN ('scheduled', 'pending', 'running', 'done', 'dead', 'cancelled')),
    priority       SMALLINT         NOT NULL,
    run_at         DATETIME(6)      NOT NULL,
    bucket         VARBINARY(2284),
    ring           BINARY(8)        GENERATED ALWAYS AS (LEFT(UNHEX(SHA2(bucket, 256)), 8)) STORED,
    attempts       INT              NOT NULL DEFAULT 0,
    max_attempts   INT              NOT NULL CHECK (max_attempts >= 1),
    timeout_ms     BIGINT           CHECK (timeout_ms >= 1),
    token          CHAR(36)         CHARACTER SET ascii COLLATE ascii_bin,
    worker         VARCHAR(190),
    lease_until    DATETIME(6),
    cancel_at      DATETIME(6),
    settled_token  CHAR(36)         CHARACTER SET ascii COLLATE ascii_bin,
    settled_as     VARCHAR(9)       CHARACTER SET ascii COLLATE ascii_bin
                                    CHECK (settled_as IN ('done', 'failed', 'released', 'snoozed', 'cancelled')),
    started_at     DATETIME(6),
    finished_at    DATETIME(6),
    dead_reason    VARCHAR(12)      CHARACTER SET ascii COLLATE ascii_bin
                                    CHECK (dead_reason IN ('exhausted', 'permanent', 'invalid_args', 'unknown_name', 'lost')),
    unique_key     VARCHAR(512),
    tenant         VARCHAR(190)     CHECK (tenant <> ''),
    batch_id       CHAR(36)         CHARACTER SET ascii COLLATE ascii_bin,
    enqueued_at    DATETIME(6)      NOT NULL,
    args           LONGTEXT         NOT NULL,
    meta           LONGTEXT,
    stage          VARCHAR(7)       CHARACTER SET ascii COLLATE ascii_bin
                                    GENERATED ALWAYS AS (CASE WHEN state = 'pending' THEN CASE WHEN bucket IS NULL THEN 'line' ELSE 'limited' END END) STORED,
    due_at         DATETIME(6)      GENERATED ALWAYS AS (CASE WHEN state = 'scheduled' THEN run_at END) STORED,
    ended          VARCHAR(9)       CHARACTER SET ascii COLLATE ascii_bin
                                    GENERATED ALWAYS AS (CASE WHEN state IN ('done', 'dead', 'cancelled') THEN state END) STORED,
    CONSTRAINT jobs_running_is_held CHECK (
        (state = 'running') = (token IS NOT NULL) AND (state = 'running') = (worker IS NOT NULL) AND (state = 'running') = (lease_until IS NOT NULL)),
    CONSTRAINT jobs_terminal_is_finished CHECK ((state IN ('done', 'dead', 'cancelled')) = (finished_at IS NOT NULL)),
    CONSTRAINT jobs_dead_has_reason CHECK ((state = 'dead') = (dead_reason IS NOT NULL)),
    CONSTRAINT jobs_attempts_in_bounds CHECK (
        attempts >= (state = 'running') AND attempts <= max_attempts - (state IN ('pending', 'scheduled'))),
    KEY jobs_line (stage, priority, run_at),
    KEY jobs_lanes (stage, queue, name, priority, ring, run_at),
    KEY jobs_due (due_at),
    KEY jobs_held (token),
    KEY jobs_ended (ended, name, finished_at),
    KEY jobs_of_batch (batch_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;

-- Who holds a unique key. The primary key is the uniqueness; enqueueing inserts here first.
-- A job never needs this table to be claimed, settled or rescued: those only delete from it.
CREATE TABLE IF NOT EXISTS jobs_keys (
    `key`   VARBINARY(1024)  NOT NULL PRIMARY KEY CHECK (`key` <> ''),
    job_id  CHAR(36)         CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    kept    VARCHAR(6)       CHARACTER SET ascii COLLATE ascii_bin NOT NULL CHECK (kept IN ('active', 'row', 'ever')),
    since   DATETIME(6)      NOT NULL,
    KEY jobs_keys_job (job_id),
    KEY jobs_keys_since (kept, since)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;

-- Keys that a job let go while a producer's transaction, which had met them held, still locked their rows: settling
-- waits for nobody, leaves the row where it is and says so here, and the sweep (or whoever enqueues under the key next) takes it away.
CREATE TABLE IF NOT EXISTS jobs__loose_keys (
    `key`   VARBINARY(1024)  NOT NULL PRIMARY KEY,
    job_id  CHAR(36)         CHARACTER SET ascii COLLATE ascii_bin NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;

-- A permit of a bucket, taken by inserting it: (bucket, slot) can be held once.
-- (jobs_slots_job is not unique: InnoDB locks the gap behind a unique entry that was deleted and comes back, and a job's slot does.)
CREATE TABLE IF NOT EXISTS jobs_slots (
    bucket    VARBINARY(2284)  NOT NULL,
    slot      INT              NOT NULL CHECK (slot >= 0),
    job_id    CHAR(36)         CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    token     CHAR(36)         CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    taken_at  DATETIME(6)      NOT NULL,
    PRIMARY KEY (bucket, slot),
    KEY jobs_slots_job (job_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;

-- The history of failed attempts, apart from the hot rows. Whoever deletes a job deletes its failures: a foreign key would
-- lock the gaps between them even at READ COMMITTED.
CREATE TABLE IF NOT EXISTS jobs_failures (
    id          BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
    job_id      CHAR(36)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    attempt     INT           NOT NULL CHECK (attempt >= 1),
    token       CHAR(36)      CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    worker      VARCHAR(190)  NOT NULL,
    kind        VARCHAR(12)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL
                              CHECK (kind IN ('error', 'timeout', 'invalid_args', 'unknown_name', 'lost')),
    type        LONGTEXT,
    message     LONGTEXT,
    stack       LONGTEXT,
    started_at  DATETIME(6)   NOT NULL,
    failed_at   DATETIME(6)   NOT NULL,
    UNIQUE KEY jobs_failures_attempt (job_id, token)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;

CREATE TABLE IF NOT EXISTS jobs_schedules (
    name         VARCHAR(190)  NOT NULL PRIMARY KEY CHECK (name <> ''),
    job          VARCHAR(190)  NOT NULL,
    cron         LONGTEXT,
    every_ms     BIGINT        CHECK (every_ms >= 1),
    timezone     VARCHAR(190)  NOT NULL DEFAULT 'UTC',
    args         LONGTEXT      NOT NULL,
    options      LONGTEXT      NOT NULL,
    source       VARCHAR(190),
    enabled      BOOLEAN       NOT NULL DEFAULT TRUE,
    next_run_at  DATETIME(6)   NOT NULL,
    last_run_at  DATETIME(6),
    last_job_id  CHAR(36)      CHARACTER SET ascii COLLATE ascii_bin,
    CHECK ((cron IS NULL) <> (every_ms IS NULL))
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;

-- Live workers; `info` is the JSON each sends of itself (host, pid, version, queues, names, concurrency).
CREATE TABLE IF NOT EXISTS jobs_workers (
    id          VARCHAR(190)  NOT NULL PRIMARY KEY CHECK (id <> ''),
    info        LONGTEXT      NOT NULL,
    started_at  DATETIME(6)   NOT NULL,
    seen_at     DATETIME(6)   NOT NULL,
    live_until  DATETIME(6)   NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;

CREATE TABLE IF NOT EXISTS jobs_paused (
    queue      VARCHAR(190)  NOT NULL PRIMARY KEY CHECK (queue <> ''),
    paused_at  DATETIME(6)   NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 /*!50700 COLLATE utf8mb4_0900_bin */ /*M!100200 COLLATE utf8mb4_nopad_bin */;
