-- jobs_open_batch, jobs_seal_batch, jobs_advance_batch: jobs that are counted together.
--
-- `done` is advanced by the statement that ends a job, so it is never behind. Sealing fixes `total` as what has ended plus
-- what has not, with no writer in between. Whoever finds the two equal finishes the batch, and `finished_at` is the
-- mark that nobody else does: so the callback is enqueued once, after the last outcome, and never before the seal.
--
-- The callback is inserted, not enqueued: nothing that has become of its definition or of a setting since can make the
-- settling of somebody's last job fail.
--
--     INSERT INTO jobs_open_batch (options) VALUES ('{"name": "import", "callback": {"name": "import/finished"}}')
--       RETURNING (SELECT value FROM jobs_answered);
--     INSERT INTO jobs_seal_batch (batch_id) VALUES ('0199…');
--     SELECT * FROM jobs_batch_status WHERE id = '0199…';

DROP VIEW IF EXISTS jobs_open_batch;
CREATE VIEW jobs_open_batch (options) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs_open_batch_called INSTEAD OF INSERT ON jobs_open_batch
BEGIN
    DELETE FROM jobs__replies;

    INSERT INTO jobs__check_object (options)
    VALUES (new.options);

    SELECT CASE key
           WHEN 'name' THEN CASE
                WHEN type NOT IN ('text', 'null')
                THEN RAISE(ABORT, 'PJ003 option name is not text; give 1 to 190 characters')
                WHEN length(value) NOT BETWEEN 1 AND 190
                THEN RAISE(ABORT, 'PJ010 option name is empty or too long; give 1 to 190 characters') END
           WHEN 'id' THEN CASE
                WHEN type <> 'null' AND (SELECT id FROM jobs__uuid WHERE given = new.options -> 'id') IS NULL
                THEN RAISE(ABORT, 'PJ003 option id is not a UUID; give one, or leave it out') END
           WHEN 'tenant' THEN CASE
                WHEN type NOT IN ('text', 'null')
                THEN RAISE(ABORT, 'PJ003 option tenant is not text; give 1 to 190 characters, or null')
                WHEN length(value) NOT BETWEEN 1 AND 190
                THEN RAISE(ABORT, 'PJ010 option tenant is empty or too long; give 1 to 190 characters, or null') END
           WHEN 'callback' THEN CASE
                WHEN type NOT IN ('object', 'null')
                THEN RAISE(ABORT, 'PJ003 option callback is not a JSON object; give name, args, options') END
           ELSE RAISE(ABORT, 'PJ003 there is no such option; options: name, callback, id, tenant') END
      FROM json_each(new.options);

    INSERT INTO jobs__check_object (options)
    VALUES (nullif(new.options -> 'callback', 'null'));

    SELECT CASE WHEN key NOT IN ('name', 'args', 'options')
                THEN RAISE(ABORT, 'PJ003 there is no such option in callback; options: name, args, options') END
      FROM json_each(new.options, '$.callback')
     WHERE key IS NOT NULL;

    SELECT CASE WHEN json_type(new.options, '$.callback.name') IS NOT 'text'
                THEN RAISE(ABORT, 'PJ003 option callback.name is missing or not text; give the name of a defined job')
                WHEN NOT EXISTS (SELECT 1 FROM jobs_definitions WHERE name = new.options ->> '$.callback.name')
                THEN RAISE(ABORT, 'PJ001 no job of that name is defined; see jobs_defined for the names that are') END
     WHERE json_type(new.options, '$.callback') = 'object';

    INSERT INTO jobs__open_batch (id, name, tenant, callback, args, options)
    SELECT coalesce(lower(new.options ->> 'id'), (SELECT id FROM jobs__new_id)),
           new.options ->> 'name',
           new.options ->> 'tenant',
           new.options ->> '$.callback.name',
           CASE json_type(new.options, '$.callback.args') WHEN 'text' THEN new.options ->> '$.callback.args'
                                                          WHEN 'null' THEN '{}'
                                                          ELSE coalesce(new.options -> '$.callback.args', '{}') END,
           coalesce(nullif(new.options -> '$.callback.options', 'null'), '{}');
END;

-- Opens a batch that has been checked, but for what its callback carries.
DROP VIEW IF EXISTS jobs__open_batch;
CREATE VIEW jobs__open_batch (id, name, tenant, callback, args, options) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__open_batch_called INSTEAD OF INSERT ON jobs__open_batch
BEGIN
    INSERT INTO jobs__check_args (args)
    SELECT new.args
     WHERE new.callback IS NOT NULL;

    INSERT INTO jobs__check_options (options, taker)
    SELECT new.options, 'callback'
     WHERE new.callback IS NOT NULL;

    -- The same id again is the same batch.
    INSERT INTO jobs_batches (id, name, tenant, callback, callback_args, callback_options, opened_at)
    SELECT new.id, new.name, new.tenant, new.callback,
           CASE WHEN new.callback IS NOT NULL THEN new.args END,
           CASE WHEN new.callback IS NOT NULL THEN new.options END,
           now
      FROM jobs_clock
     WHERE true
        ON CONFLICT (id) DO NOTHING;

    INSERT INTO jobs__replies (position, answer) VALUES (-1, new.id);
END;

DROP VIEW IF EXISTS jobs_seal_batch;
CREATE VIEW jobs_seal_batch (batch_id) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs_seal_batch_called INSTEAD OF INSERT ON jobs_seal_batch
BEGIN
    SELECT RAISE(ABORT, 'PJ003 the batch_id is not a UUID; give the id that jobs_open_batch answered')
     WHERE new.batch_id IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM jobs__uuid WHERE given = json_quote(CAST(new.batch_id AS TEXT)));

    SELECT RAISE(ABORT, 'PJ005 there is no such batch; open one with jobs_open_batch')
     WHERE NOT EXISTS (SELECT 1 FROM jobs_batches WHERE id = lower(new.batch_id));

    UPDATE jobs_batches
       SET sealed_at = (SELECT now FROM jobs_clock),
           total = done + (SELECT count(*)
                             FROM jobs INDEXED BY jobs_of_batch
                            WHERE batch_id = jobs_batches.id
                              AND state NOT IN ('done', 'dead', 'cancelled'))
     WHERE id = lower(new.batch_id)
       AND sealed_at IS NULL;

    INSERT INTO jobs__finish_batch (id, now)
    VALUES (lower(new.batch_id), (SELECT now FROM jobs_clock));
END;

DROP VIEW IF EXISTS jobs_advance_batch;
CREATE VIEW jobs_advance_batch (batch_id) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs_advance_batch_called INSTEAD OF INSERT ON jobs_advance_batch
BEGIN
    SELECT RAISE(ABORT, 'PJ003 the batch_id is not a UUID; give the id that jobs_open_batch answered')
     WHERE new.batch_id IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM jobs__uuid WHERE given = json_quote(CAST(new.batch_id AS TEXT)));

    SELECT RAISE(ABORT, 'PJ005 there is no such batch; open one with jobs_open_batch')
     WHERE NOT EXISTS (SELECT 1 FROM jobs_batches WHERE id = lower(new.batch_id));

    INSERT INTO jobs__finish_batch (id, now)
    VALUES (lower(new.batch_id), (SELECT now FROM jobs_clock));
END;

-- Finishes a batch if it is sealed, all its jobs have ended and it is not finished yet.
DROP VIEW IF EXISTS jobs__finish_batch;
CREATE VIEW jobs__finish_batch (id, now) AS
SELECT NULL, NULL WHERE false;

CREATE TRIGGER jobs__finish_batch_called INSTEAD OF INSERT ON jobs__finish_batch
WHEN EXISTS (SELECT 1 FROM jobs_batches WHERE id = new.id AND finished_at IS NULL AND done = total)
BEGIN
    UPDATE jobs_batches
       SET finished_at = new.now
     WHERE id = new.id;

    INSERT INTO jobs__call_back
           (batch_id, id, name, total, done, failed, tenant, callback, args, options, now)
    SELECT b.id, (SELECT id FROM jobs__new_id), b.name, b.total, b.done, b.failed, b.tenant,
           b.callback, b.callback_args, b.callback_options, new.now
      FROM jobs_batches AS b
     WHERE b.id = new.id
       AND b.callback IS NOT NULL;
END;

DROP VIEW IF EXISTS jobs__call_back;
CREATE VIEW jobs__call_back
       (batch_id, id, name, total, done, failed, tenant, callback, args, options, now) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__call_back_called INSTEAD OF INSERT ON jobs__call_back
BEGIN
    INSERT INTO jobs__insert
           (id, name, queue, priority, max_attempts, timeout_ms, run_at, tenant, args, meta, now)
    SELECT new.id,
           new.callback,
           coalesce(new.options ->> 'queue', d.queue, 'default'),
           coalesce(new.options ->> 'priority', d.priority, 0),
           coalesce(new.options ->> 'max_attempts', d.max_attempts, 5),
           coalesce(new.options ->> 'timeout_ms', d.timeout_ms),
           CASE WHEN new.options ->> 'run_at' IS NULL
                THEN new.now + coalesce(new.options ->> 'delay_ms', 0)
                ELSE (SELECT ms FROM jobs__moment WHERE given = new.options -> 'run_at') END,
           new.tenant,
           new.args,
           json_set(coalesce(nullif(new.options -> 'meta', 'null'), '{}'), '$.batch', json_object(
               'id', new.batch_id,
               'name', new.name,
               'total', new.total,
               'done', new.done,
               'failed', new.failed,
               'succeeded', new.done - new.failed)),
           new.now
      FROM (SELECT 1)
      LEFT JOIN jobs_definitions AS d ON d.name = new.callback;

    UPDATE jobs_batches
       SET callback_id = new.id
     WHERE id = new.batch_id;
END;
