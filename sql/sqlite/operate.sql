-- jobs_retry, jobs_cancel, jobs_discard: put back, call off, delete. jobs_pause_queue, jobs_resume_queue, jobs_set.
--
-- All three choose jobs by a filter, in one place, and then do one job after another in the same statement: its key, its
-- row, its batch. A running job that is named by its id is refused (PJ006), not passed over; in bulk it is.
--
--     INSERT INTO jobs_retry (filter, options) VALUES ('{"state": "dead", "queue": "mailers"}', '{"delay_ms": 60000}')
--       RETURNING (SELECT value FROM jobs_answered);

DROP VIEW IF EXISTS jobs_retry;
CREATE VIEW jobs_retry (filter, options) AS
SELECT NULL, NULL WHERE false;

CREATE TRIGGER jobs_retry_called INSTEAD OF INSERT ON jobs_retry
BEGIN
    INSERT INTO jobs__check_object (options)
    VALUES (new.options);

    SELECT CASE key
           WHEN 'run_at' THEN CASE
                WHEN type <> 'null' AND (SELECT ms FROM jobs__moment WHERE given = new.options -> 'run_at') IS NULL
                THEN RAISE(ABORT, 'PJ003 option run_at is not a moment; give ISO 8601 with an offset, as 2026-01-31T09:00:00Z') END
           WHEN 'delay_ms' THEN CASE
                WHEN type NOT IN ('integer', 'null') OR value NOT BETWEEN 0 AND 10000000000000
                THEN RAISE(ABORT, 'PJ003 option delay_ms is not a whole number from 0; give milliseconds')
                WHEN type <> 'null' AND new.options ->> 'run_at' IS NOT NULL
                THEN RAISE(ABORT, 'PJ003 option delay_ms is given together with run_at; give one of them') END
           ELSE RAISE(ABORT, 'PJ003 there is no such option; options: run_at, delay_ms') END
      FROM json_each(new.options);

    INSERT INTO jobs__operate (verb, filter, run_at, now)
    SELECT 'retry',
           new.filter,
           CASE WHEN new.options ->> 'run_at' IS NULL
                THEN now + coalesce(new.options ->> 'delay_ms', 0)
                ELSE (SELECT ms FROM jobs__moment WHERE given = new.options -> 'run_at') END,
           now
      FROM jobs_clock;
END;

DROP VIEW IF EXISTS jobs_cancel;
CREATE VIEW jobs_cancel (filter) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs_cancel_called INSTEAD OF INSERT ON jobs_cancel
BEGIN
    INSERT INTO jobs__operate (verb, filter, now)
    VALUES ('cancel', new.filter, (SELECT now FROM jobs_clock));
END;

DROP VIEW IF EXISTS jobs_discard;
CREATE VIEW jobs_discard (filter) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs_discard_called INSTEAD OF INSERT ON jobs_discard
BEGIN
    INSERT INTO jobs__operate (verb, filter, now)
    VALUES ('discard', new.filter, (SELECT now FROM jobs_clock));
END;

-- Reads the filter of one of the three.
DROP VIEW IF EXISTS jobs__operate;
CREATE VIEW jobs__operate (verb, filter, run_at, now) AS
SELECT NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__operate_called INSTEAD OF INSERT ON jobs__operate
BEGIN
    DELETE FROM jobs__replies;

    SELECT CASE WHEN typeof(coalesce(new.filter, '{}')) <> 'text' OR NOT json_valid(coalesce(new.filter, '{}'))
                THEN RAISE(ABORT, 'PJ003 the filter is not JSON; give an object')
                WHEN json_type(coalesce(new.filter, '{}')) <> 'object'
                THEN RAISE(ABORT, 'PJ003 the filter is not a JSON object; give an object') END;

    INSERT INTO jobs__check_keys (object)
    VALUES (new.filter);

    SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM json_each(new.filter) WHERE key <> 'limit' AND (type <> 'null' OR key = 'tenant'))
                THEN RAISE(ABORT, 'PJ003 the filter has no key; say which jobs are meant, as {"state": "dead"}') END;

    SELECT CASE key
           WHEN 'id' THEN CASE
                WHEN type <> 'null' AND (SELECT id FROM jobs__uuid WHERE given = new.filter -> 'id') IS NULL
                THEN RAISE(ABORT, 'PJ003 filter id is not a UUID; give the id of a job') END
           WHEN 'ids' THEN CASE
                WHEN type NOT IN ('array', 'null')
                  OR EXISTS (SELECT 1
                               FROM json_each(new.filter, '$.ids') AS each
                              WHERE each.type <> 'text'
                                 OR (SELECT id FROM jobs__uuid WHERE given = json_quote(each.value)) IS NULL)
                THEN RAISE(ABORT, 'PJ003 filter ids is not an array of UUIDs; give ids of jobs') END
           WHEN 'state' THEN CASE
                WHEN type <> 'null' AND value NOT IN ('scheduled', 'pending', 'running', 'done', 'dead', 'cancelled')
                THEN RAISE(ABORT, 'PJ003 filter state is not a state; give scheduled, pending, running, done, dead or cancelled') END
           WHEN 'queue' THEN CASE
                WHEN type NOT IN ('text', 'null')
                THEN RAISE(ABORT, 'PJ003 filter queue is not text; give the name of a queue') END
           WHEN 'name' THEN CASE
                WHEN type NOT IN ('text', 'null')
                THEN RAISE(ABORT, 'PJ003 filter name is not text; give the name of a job') END
           WHEN 'tenant' THEN CASE
                WHEN type NOT IN ('text', 'null')
                THEN RAISE(ABORT, 'PJ003 filter tenant is not text; give a tenant, or null for jobs of none') END
           WHEN 'batch_id' THEN CASE
                WHEN type <> 'null' AND (SELECT id FROM jobs__uuid WHERE given = new.filter -> 'batch_id') IS NULL
                THEN RAISE(ABORT, 'PJ003 filter batch_id is not a UUID; give the id of a batch') END
           WHEN 'dead_reason' THEN CASE
                WHEN type <> 'null' AND value NOT IN ('exhausted', 'permanent', 'invalid_args', 'unknown_name', 'lost')
                THEN RAISE(ABORT, 'PJ003 filter dead_reason is not a reason; give exhausted, permanent, invalid_args, unknown_name or lost') END
           WHEN 'before' THEN CASE
                WHEN type <> 'null' AND (SELECT ms FROM jobs__moment WHERE given = new.filter -> 'before') IS NULL
                THEN RAISE(ABORT, 'PJ003 filter before is not a moment; give ISO 8601 with an offset, as 2026-01-31T09:00:00Z') END
           WHEN 'limit' THEN CASE
                WHEN type NOT IN ('integer', 'null') OR value NOT BETWEEN 0 AND 2147483647
                THEN RAISE(ABORT, 'PJ003 filter limit is not a whole number from 0; give the most jobs to touch') END
           ELSE RAISE(ABORT, 'PJ003 there is no such filter; filters: id, ids, state, queue, name, tenant, batch_id, dead_reason, before, limit') END
      FROM json_each(new.filter);

    INSERT INTO jobs__choose
           (verb, id, ids, state, queue, name, any_tenant, tenant, batch_id, dead_reason, before, most, run_at, now)
    VALUES (new.verb,
            lower(new.filter ->> 'id'),
            nullif(new.filter -> 'ids', 'null'),
            new.filter ->> 'state',
            new.filter ->> 'queue',
            new.filter ->> 'name',
            json_type(new.filter, '$.tenant') IS NULL,
            new.filter ->> 'tenant',
            lower(new.filter ->> 'batch_id'),
            new.filter ->> 'dead_reason',
            (SELECT ms FROM jobs__moment WHERE given = new.filter -> 'before'),
            coalesce(new.filter ->> 'limit', 9223372036854775807),
            new.run_at,
            new.now);
END;

-- Goes through the jobs that a filter means. Of the ways to find them only the narrowest is taken: by ids, by batch, by
-- state (each by the index of that state), or by reading the table, which an operator may.
DROP VIEW IF EXISTS jobs__choose;
CREATE VIEW jobs__choose
       (verb, id, ids, state, queue, name, any_tenant, tenant, batch_id, dead_reason, before, most, run_at, now) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__choose_called INSTEAD OF INSERT ON jobs__choose
BEGIN
    INSERT INTO jobs__touch (verb, job, id, state, unique_key, batch_id, named, run_at, now)
    SELECT new.verb, j.rowid, j.id, j.state, j.unique_key, j.batch_id, new.id IS NOT NULL, new.run_at, new.now
      FROM (SELECT rowid AS job
              FROM jobs
             WHERE id = new.id
             UNION ALL
            SELECT rowid
              FROM jobs
             WHERE new.id IS NULL
               AND id IN (SELECT lower(value) FROM json_each(new.ids))
             UNION ALL
            SELECT rowid
              FROM jobs INDEXED BY jobs_of_batch
             WHERE coalesce(new.id, new.ids) IS NULL
               AND batch_id = new.batch_id
             UNION ALL
            SELECT rowid
              FROM jobs INDEXED BY jobs_due
             WHERE coalesce(new.id, new.ids, new.batch_id) IS NULL
               AND new.state = 'scheduled'
               AND state = 'scheduled'
             UNION ALL
            SELECT rowid
              FROM jobs INDEXED BY jobs_line
             WHERE coalesce(new.id, new.ids, new.batch_id) IS NULL
               AND new.state = 'pending'
               AND state = 'pending'
               AND bucket IS NULL
             UNION ALL
            SELECT rowid
              FROM jobs INDEXED BY jobs_limited
             WHERE coalesce(new.id, new.ids, new.batch_id) IS NULL
               AND new.state = 'pending'
               AND state = 'pending'
               AND bucket IS NOT NULL
             UNION ALL
            SELECT rowid
              FROM jobs INDEXED BY jobs_held
             WHERE coalesce(new.id, new.ids, new.batch_id) IS NULL
               AND new.state = 'running'
               AND state = 'running'
             UNION ALL
            SELECT rowid
              FROM jobs INDEXED BY jobs_ended
             WHERE coalesce(new.id, new.ids, new.batch_id) IS NULL
               AND state = CASE WHEN new.state IS NULL AND new.dead_reason IS NOT NULL THEN 'dead' ELSE new.state END
               AND finished_at IS NOT NULL
             UNION ALL
            SELECT rowid
              FROM jobs
             WHERE coalesce(new.id, new.ids, new.batch_id, new.state, new.dead_reason) IS NULL) AS found
     CROSS JOIN jobs AS j ON j.rowid = found.job
     WHERE (new.ids IS NULL OR j.id IN (SELECT lower(value) FROM json_each(new.ids)))
       AND (new.state IS NULL OR j.state = new.state)
       AND (new.queue IS NULL OR j.queue = new.queue)
       AND (new.name IS NULL OR j.name = new.name)
       AND (new.any_tenant OR j.tenant IS new.tenant)
       AND (new.batch_id IS NULL OR j.batch_id = new.batch_id)
       AND (new.dead_reason IS NULL OR j.dead_reason = new.dead_reason)
       AND (new.before IS NULL OR j.enqueued_at < new.before)
       AND CASE new.verb WHEN 'cancel' THEN j.state IN ('scheduled', 'pending') OR j.state = 'running' AND j.cancel_at IS NULL
                         WHEN 'retry' THEN j.state IN ('scheduled', 'done', 'dead', 'cancelled') OR new.id IS NOT NULL AND j.state = 'running'
                         WHEN 'discard' THEN j.state <> 'running' OR new.id IS NOT NULL END
     LIMIT new.most;

    INSERT INTO jobs__replies (position, answer)
    VALUES (-1, (SELECT count(*) FROM jobs__replies));
END;

-- Does one job. A reply is left for each that was done, to be counted.
DROP VIEW IF EXISTS jobs__touch;
CREATE VIEW jobs__touch (verb, job, id, state, unique_key, batch_id, named, run_at, now) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__cancel_one INSTEAD OF INSERT ON jobs__touch
WHEN new.verb = 'cancel'
BEGIN
    UPDATE jobs
       SET cancel_at = new.now
     WHERE rowid = new.job
       AND state = 'running';

    UPDATE jobs
       SET state = 'cancelled',
           finished_at = new.now
     WHERE rowid = new.job
       AND state <> 'running';

    INSERT INTO jobs__ended (id, batch_id, state, now)
    SELECT id, batch_id, state, new.now
      FROM jobs
     WHERE rowid = new.job;

    INSERT INTO jobs__replies (id) VALUES (new.id);
END;

CREATE TRIGGER jobs__discard_one INSTEAD OF INSERT ON jobs__touch
WHEN new.verb = 'discard'
BEGIN
    SELECT RAISE(ABORT, 'PJ006 the job is running; cancel it, or wait until it has ended')
     WHERE new.state = 'running';

    DELETE FROM jobs
     WHERE rowid = new.job;

    -- A job that had not ended is counted, as failed.
    INSERT INTO jobs__ended (id, batch_id, state, now)
    VALUES (new.id, CASE WHEN new.state IN ('scheduled', 'pending') THEN new.batch_id END, 'cancelled', new.now);

    INSERT INTO jobs__replies (id) VALUES (new.id);
END;

CREATE TRIGGER jobs__retry_one INSTEAD OF INSERT ON jobs__touch
WHEN new.verb = 'retry'
BEGIN
    SELECT CASE WHEN new.state = 'running'
                THEN RAISE(ABORT, 'PJ006 the job is running; cancel it, or wait until it has ended')
                WHEN new.named AND EXISTS (SELECT 1 FROM jobs_keys WHERE key = new.unique_key AND job_id <> new.id)
                THEN RAISE(ABORT, 'PJ007 the unique key is held by another job; cancel that one, or wait until it has ended') END;

    INSERT INTO jobs_keys (key, job_id, kept, since)
    SELECT new.unique_key, new.id, 'active', new.now
     WHERE new.unique_key IS NOT NULL
        ON CONFLICT (key) DO NOTHING;

    INSERT INTO jobs__put_back (job, id, state, batch_id, run_at, now)
    SELECT new.job, new.id, new.state, new.batch_id, new.run_at, new.now
     WHERE new.unique_key IS NULL
        OR EXISTS (SELECT 1 FROM jobs_keys WHERE key = new.unique_key AND job_id = new.id);
END;

-- Puts back a job whose key is its own.
DROP VIEW IF EXISTS jobs__put_back;
CREATE VIEW jobs__put_back (job, id, state, batch_id, run_at, now) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__put_back_called INSTEAD OF INSERT ON jobs__put_back
BEGIN
    UPDATE jobs
       SET state = CASE WHEN new.run_at > new.now THEN 'scheduled' ELSE 'pending' END,
           run_at = new.run_at,
           attempts = 0,
           cancel_at = NULL,
           finished_at = NULL,
           dead_reason = NULL,
           bucket = (SELECT bucket FROM jobs__bucket_of WHERE job = new.job)
     WHERE rowid = new.job;

    UPDATE jobs_batches
       SET done = done - 1,
           failed = failed - (new.state <> 'done')
     WHERE id = new.batch_id
       AND new.state <> 'scheduled';

    INSERT INTO jobs__replies (id) VALUES (new.id);
END;

DROP VIEW IF EXISTS jobs_pause_queue;
CREATE VIEW jobs_pause_queue (queue) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs_pause_queue_called INSTEAD OF INSERT ON jobs_pause_queue
BEGIN
    SELECT RAISE(ABORT, 'PJ010 the queue is empty, too long or not text; give 1 to 190 characters')
     WHERE typeof(new.queue) <> 'text' OR length(new.queue) NOT BETWEEN 1 AND 190 OR instr(new.queue, char(0)) > 0;

    INSERT INTO jobs_paused (queue, paused_at)
    VALUES (new.queue, (SELECT now FROM jobs_clock))
        ON CONFLICT (queue) DO NOTHING;
END;

DROP VIEW IF EXISTS jobs_resume_queue;
CREATE VIEW jobs_resume_queue (queue) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs_resume_queue_called INSTEAD OF INSERT ON jobs_resume_queue
BEGIN
    SELECT RAISE(ABORT, 'PJ010 the queue is empty, too long or not text; give 1 to 190 characters')
     WHERE typeof(new.queue) <> 'text' OR length(new.queue) NOT BETWEEN 1 AND 190 OR instr(new.queue, char(0)) > 0;

    DELETE FROM jobs_paused WHERE queue = new.queue;
END;

-- The value is JSON: a number may be given as such, true and false only as text ('true'), for SQLite's are numbers.
DROP VIEW IF EXISTS jobs_set;
CREATE VIEW jobs_set (name, value) AS
SELECT NULL, NULL WHERE false;

CREATE TRIGGER jobs_set_called INSTEAD OF INSERT ON jobs_set
BEGIN
    INSERT INTO jobs__set (name, value)
    VALUES (new.name, CASE WHEN typeof(new.value) = 'text' AND json_valid(new.value) THEN new.value ELSE json_quote(new.value) END);
END;

DROP VIEW IF EXISTS jobs__set;
CREATE VIEW jobs__set (name, value) AS
SELECT NULL, NULL WHERE false;

CREATE TRIGGER jobs__set_called INSTEAD OF INSERT ON jobs__set
BEGIN
    SELECT CASE new.name
           WHEN 'max_args_bytes' THEN CASE
                WHEN json_type(new.value) <> 'integer' OR new.value ->> '$' NOT BETWEEN 1 AND 104857600
                THEN RAISE(ABORT, 'PJ003 the setting max_args_bytes is not a whole number from 1 to 104857600; give bytes') END
           WHEN 'keep_keys_ms' THEN CASE
                WHEN json_type(new.value) NOT IN ('integer', 'null') OR new.value ->> '$' NOT BETWEEN 0 AND 10000000000000
                THEN RAISE(ABORT, 'PJ003 the setting keep_keys_ms is not a whole number from 0; give milliseconds, or null to keep them') END
           WHEN 'notify' THEN CASE
                WHEN json_type(new.value) NOT IN ('true', 'false')
                THEN RAISE(ABORT, 'PJ003 the setting notify is neither true nor false; give one of them as text') END
           ELSE RAISE(ABORT, 'PJ003 there is no such setting; settings: max_args_bytes, keep_keys_ms, notify') END;

    UPDATE jobs_settings
       SET value = trim(new.value)
     WHERE name = new.name;
END;
