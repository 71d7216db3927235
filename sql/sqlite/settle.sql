-- jobs_settle, jobs_settle_many: what an attempt came to.
--
-- Only the holder of the current token can settle a job: the row is found by id and token, and has the token no more
-- afterwards. Its last one is kept with its outcome, so that an outcome sent again is recognised and answered alike; a
-- failure is also recognised by its row in the history, whoever holds the job by then.
--
-- With the row, in one statement, go its slot, its unique key, its place in the batch and, if it was the last there, the
-- batch's callback. None of them can refuse.
--
--     INSERT INTO jobs_settle (id, token, outcome, detail) VALUES ('0199…', '6f9f5d0e-…', 'failed', '{"message": "no route"}');
--     SELECT accepted, state FROM jobs_settled;

DROP VIEW IF EXISTS jobs_settled;
CREATE VIEW jobs_settled (position, id, accepted, state) AS
SELECT position, id, accepted, answer
  FROM jobs__replies
 WHERE position >= 0;

-- How long a job waits after its last attempt failed: base × factor^(attempts − 1), at most max, times 1 ± jitter.
DROP VIEW IF EXISTS jobs__backoff;
CREATE VIEW jobs__backoff (job, ms) AS
SELECT job,
       CAST(round((WITH RECURSIVE wait (attempt, ms) AS (
                       SELECT 1, min(base, most)
                        UNION ALL
                       SELECT attempt + 1, min(ms * factor, most)
                         FROM wait
                        WHERE attempt < attempts
                          AND ms < most)
                   SELECT max(ms) FROM wait)
                  * (1 + jitter * (random() % 1000001) / 1000000.0)) AS INTEGER)
  FROM (SELECT j.rowid AS job,
               j.attempts,
               coalesce(d.backoff_base_ms, 5000) AS base,
               coalesce(d.backoff_factor, 4) AS factor,
               coalesce(d.backoff_max_ms, 3600000) AS most,
               coalesce(d.backoff_jitter, 0.15) AS jitter
          FROM jobs AS j
          LEFT JOIN jobs_definitions AS d ON d.name = j.name);

DROP VIEW IF EXISTS jobs_settle;
CREATE VIEW jobs_settle (id, token, outcome, detail) AS
SELECT NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs_settle_called INSTEAD OF INSERT ON jobs_settle
BEGIN
    DELETE FROM jobs__replies;

    SELECT RAISE(ABORT, 'PJ003 the id or token is missing or not a UUID; give those of the claim')
     WHERE coalesce(new.id, '') NOT GLOB '????????-????-????-????-????????????'
        OR coalesce(new.token, '') NOT GLOB '????????-????-????-????-????????????';

    INSERT INTO jobs__settle (position, id, token, outcome, detail)
    VALUES (0, lower(new.id), lower(new.token), new.outcome, coalesce(new.detail, '{}'));
END;

DROP VIEW IF EXISTS jobs_settle_many;
CREATE VIEW jobs_settle_many (outcomes) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs_settle_many_called INSTEAD OF INSERT ON jobs_settle_many
BEGIN
    DELETE FROM jobs__replies;

    SELECT CASE WHEN typeof(new.outcomes) <> 'text' OR NOT json_valid(new.outcomes)
                THEN RAISE(ABORT, 'PJ003 the outcomes are not JSON; give an array of {id, token, outcome, detail}')
                WHEN json_type(new.outcomes) <> 'array'
                THEN RAISE(ABORT, 'PJ003 the outcomes are not an array; give an array of {id, token, outcome, detail}') END;

    SELECT CASE WHEN one.type <> 'object'
                THEN RAISE(ABORT, 'PJ003 one of the outcomes is not an object; give {id, token, outcome, detail}')
                WHEN EXISTS (SELECT 1 FROM json_each(one.value) WHERE key NOT IN ('id', 'token', 'outcome', 'detail'))
                THEN RAISE(ABORT, 'PJ003 there is no such option in outcomes; options: id, token, outcome, detail')
                WHEN coalesce(one.value ->> 'id', '') NOT GLOB '????????-????-????-????-????????????'
                  OR coalesce(one.value ->> 'token', '') NOT GLOB '????????-????-????-????-????????????'
                THEN RAISE(ABORT, 'PJ003 one of the outcomes lacks its id or token; give {id, token, outcome, detail}, both UUIDs') END
      FROM json_each(new.outcomes) AS one;

    INSERT INTO jobs__check_keys (object)
    SELECT value
      FROM json_each(new.outcomes);

    INSERT INTO jobs__settle (position, id, token, outcome, detail)
    SELECT key,
           lower(value ->> 'id'),
           lower(value ->> 'token'),
           value ->> 'outcome',
           coalesce(nullif(value -> 'detail', 'null'), '{}')
      FROM json_each(new.outcomes);
END;

-- One outcome of a call.
DROP VIEW IF EXISTS jobs__settle;
CREATE VIEW jobs__settle (position, id, token, outcome, detail) AS
SELECT NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__settle_called INSTEAD OF INSERT ON jobs__settle
BEGIN
    SELECT CASE WHEN new.outcome IS NULL OR new.outcome NOT IN ('done', 'failed', 'released', 'snoozed', 'cancelled')
                THEN RAISE(ABORT, 'PJ003 there is no such outcome; outcomes: done, failed, released, snoozed, cancelled') END;

    INSERT INTO jobs__check_detail (outcome, detail)
    VALUES (new.outcome, new.detail);

    INSERT INTO jobs__attempt (position, job, outcome, detail, now)
    VALUES (new.position,
            (SELECT rowid FROM jobs WHERE id = new.id AND token = new.token),
            new.outcome,
            new.detail,
            (SELECT now FROM jobs_clock));

    INSERT INTO jobs__unheld (position, id, token, outcome)
    VALUES (new.position, new.id, new.token, new.outcome);
END;

-- Refuses the detail of an outcome that is unknown to it or has a bad value.
DROP VIEW IF EXISTS jobs__check_detail;
CREATE VIEW jobs__check_detail (outcome, detail) AS
SELECT NULL, NULL WHERE false;

CREATE TRIGGER jobs__check_detail_called INSTEAD OF INSERT ON jobs__check_detail
WHEN new.detail <> '{}' OR new.outcome = 'snoozed'
BEGIN
    SELECT CASE WHEN typeof(new.detail) <> 'text' OR NOT json_valid(new.detail)
                THEN RAISE(ABORT, 'PJ003 the detail is not JSON; give an object')
                WHEN json_type(new.detail) <> 'object'
                THEN RAISE(ABORT, 'PJ003 the detail is not a JSON object; give an object') END;

    INSERT INTO jobs__check_keys (object)
    VALUES (new.detail);

    SELECT CASE new.outcome
           WHEN 'failed' THEN CASE
                WHEN key NOT IN ('type', 'message', 'stack', 'kind', 'permanent', 'retry_in_ms')
                THEN RAISE(ABORT, 'PJ003 there is no such detail of failed; details: type, message, stack, kind, permanent, retry_in_ms') END
           WHEN 'snoozed' THEN CASE
                WHEN key <> 'delay_ms'
                THEN RAISE(ABORT, 'PJ003 there is no such detail of snoozed; details: delay_ms') END
           WHEN 'cancelled' THEN CASE
                WHEN key <> 'message'
                THEN RAISE(ABORT, 'PJ003 there is no such detail of cancelled; details: message') END
           ELSE RAISE(ABORT, 'PJ003 there is no such detail of this outcome; details: none') END
      FROM json_each(new.detail);

    SELECT CASE key
           WHEN 'type' THEN CASE
                WHEN type <> 'text'
                THEN RAISE(ABORT, 'PJ003 detail type is not text; give the name of the error') END
           WHEN 'message' THEN CASE
                WHEN type <> 'text'
                THEN RAISE(ABORT, 'PJ003 detail message is not text; give what the error said') END
           WHEN 'stack' THEN CASE
                WHEN type <> 'text'
                THEN RAISE(ABORT, 'PJ003 detail stack is not text; give where it happened') END
           WHEN 'kind' THEN CASE
                WHEN value NOT IN ('error', 'timeout', 'invalid_args', 'unknown_name', 'lost')
                THEN RAISE(ABORT, 'PJ003 detail kind is not one it takes; give error, timeout, invalid_args, unknown_name or lost') END
           WHEN 'permanent' THEN CASE
                WHEN type NOT IN ('true', 'false')
                THEN RAISE(ABORT, 'PJ003 detail permanent is neither true nor false; give one of them') END
           WHEN 'retry_in_ms' THEN CASE
                WHEN type <> 'integer' OR value NOT BETWEEN 0 AND 10000000000000
                THEN RAISE(ABORT, 'PJ003 detail retry_in_ms is not a whole number from 0; give milliseconds') END
           WHEN 'delay_ms' THEN CASE
                WHEN type <> 'integer' OR value NOT BETWEEN 0 AND 10000000000000
                THEN RAISE(ABORT, 'PJ003 detail delay_ms is not a whole number from 0; give milliseconds') END
           END
      FROM json_each(new.detail)
     WHERE type <> 'null';

    SELECT RAISE(ABORT, 'PJ003 detail delay_ms is missing; say for how many milliseconds the job is put off')
     WHERE new.outcome = 'snoozed'
       AND new.detail ->> 'delay_ms' IS NULL;
END;

-- Settles a running job, given by its row: what becomes of it.
DROP VIEW IF EXISTS jobs__attempt;
CREATE VIEW jobs__attempt (position, job, outcome, detail, now) AS
SELECT NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__attempt_called INSTEAD OF INSERT ON jobs__attempt
WHEN new.job IS NOT NULL
BEGIN
    INSERT INTO jobs__conclude (position, job, id, token, batch_id, outcome, verdict, reason, detail, due, unkept, now)
    SELECT new.position, new.job, j.id, j.token, j.batch_id, new.outcome,
           CASE WHEN new.outcome = 'done' THEN 'done'
                WHEN new.outcome = 'cancelled' OR j.cancel_at IS NOT NULL THEN 'cancelled'
                WHEN new.outcome = 'released' THEN 'pending'
                WHEN new.outcome = 'snoozed' THEN 'scheduled'
                WHEN j.attempts >= j.max_attempts OR new.detail ->> 'permanent' OR new.detail ->> 'kind' = 'invalid_args' THEN 'dead'
                ELSE 'scheduled' END,
           CASE WHEN new.detail ->> 'kind' IN ('invalid_args', 'unknown_name') THEN new.detail ->> 'kind'
                WHEN new.detail ->> 'permanent' THEN 'permanent'
                WHEN new.detail ->> 'kind' = 'lost' THEN 'lost'
                ELSE 'exhausted' END,
           new.detail,
           CASE new.outcome WHEN 'snoozed' THEN new.now + (new.detail ->> 'delay_ms')
                            WHEN 'failed' THEN new.now + coalesce(new.detail ->> 'retry_in_ms',
                                                                  (SELECT ms FROM jobs__backoff WHERE job = new.job)) END,
           d.keep_done_ms = 0,
           new.now
      FROM jobs AS j
      LEFT JOIN jobs_definitions AS d ON d.name = j.name
     WHERE j.rowid = new.job;
END;

DROP VIEW IF EXISTS jobs__conclude;
CREATE VIEW jobs__conclude (position, job, id, token, batch_id, outcome, verdict, reason, detail, due, unkept, now) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__conclude_called INSTEAD OF INSERT ON jobs__conclude
BEGIN
    INSERT INTO jobs_failures (job_id, attempt, token, worker, kind, type, message, stack, started_at, failed_at)
    SELECT id, attempts, token, worker,
           coalesce(new.detail ->> 'kind', 'error'),
           (SELECT text FROM jobs__text WHERE given = new.detail -> 'type'),
           (SELECT text FROM jobs__text WHERE given = new.detail -> 'message'),
           (SELECT text FROM jobs__text WHERE given = new.detail -> 'stack'),
           started_at,
           new.now
      FROM jobs
     WHERE rowid = new.job
       AND new.outcome = 'failed'
        ON CONFLICT (job_id, token) DO NOTHING;  -- a token may meet its job again, and its failure must not be refused

    UPDATE jobs
       SET state = new.verdict,
           run_at = CASE WHEN new.verdict = 'scheduled' THEN new.due ELSE run_at END,
           bucket = CASE WHEN new.verdict IN ('scheduled', 'pending')
                         THEN (SELECT bucket FROM jobs__bucket_of WHERE job = new.job)
                         ELSE bucket END,
           attempts = attempts - (new.outcome IN ('released', 'snoozed')),
           token = NULL,
           worker = NULL,
           lease_until = NULL,
           settled_token = new.token,
           settled_as = new.outcome,
           finished_at = CASE WHEN new.verdict IN ('done', 'dead', 'cancelled') THEN new.now END,
           dead_reason = CASE WHEN new.verdict = 'dead' THEN new.reason END
     WHERE rowid = new.job;

    DELETE FROM jobs_slots
     WHERE job_id = new.id;

    INSERT INTO jobs__ended (id, batch_id, state, now)
    VALUES (new.id, new.batch_id, new.verdict, new.now);

    DELETE FROM jobs
     WHERE rowid = new.job
       AND new.unkept
       AND new.verdict = 'done';

    INSERT INTO jobs__replies (position, id, answer, accepted)
    VALUES (new.position, new.id, new.verdict, true);
END;

-- What goes with the end of a job: its key, unless that is kept longer, and its place in its batch.
DROP VIEW IF EXISTS jobs__ended;
CREATE VIEW jobs__ended (id, batch_id, state, now) AS
SELECT NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__ended_called INSTEAD OF INSERT ON jobs__ended
WHEN new.state IN ('done', 'dead', 'cancelled')
BEGIN
    DELETE FROM jobs_keys
     WHERE job_id = new.id
       AND kept = 'active';

    UPDATE jobs_batches
       SET done = done + 1,
           failed = failed + (new.state <> 'done')
     WHERE id = new.batch_id;

    INSERT INTO jobs__finish_batch (id, now)
    VALUES (new.batch_id, new.now);
END;

-- What goes with a row, whoever deletes it.
DROP TRIGGER IF EXISTS jobs__deleted;
CREATE TRIGGER jobs__deleted AFTER DELETE ON jobs
BEGIN
    DELETE FROM jobs_failures WHERE job_id = old.id;
    DELETE FROM jobs_keys WHERE job_id = old.id AND kept <> 'ever';
    DELETE FROM jobs_slots WHERE job_id = old.id;
END;

-- An outcome of a token that does not hold the job: a repeat, or too late.
DROP VIEW IF EXISTS jobs__unheld;
CREATE VIEW jobs__unheld (position, id, token, outcome) AS
SELECT NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__unheld_called INSTEAD OF INSERT ON jobs__unheld
WHEN NOT EXISTS (SELECT 1 FROM jobs__replies WHERE position = new.position)
BEGIN
    INSERT INTO jobs__replies (position, id, answer, accepted)
    VALUES (new.position,
            new.id,
            (SELECT state FROM jobs WHERE id = new.id),
            EXISTS (SELECT 1 FROM jobs WHERE id = new.id AND settled_token = new.token AND settled_as = new.outcome)
            OR (new.outcome = 'failed'
                AND EXISTS (SELECT 1 FROM jobs_failures WHERE job_id = new.id AND token = new.token)));
END;
