-- jobs_enqueue, jobs_enqueue_many: accept work.
--
-- Sent twice, a job goes in once: its id is looked at first, then its unique key, and whoever is found there is the
-- answer. The key is a row of `jobs_keys` whose primary key is the uniqueness. An enqueue is one statement inside the
-- caller's transaction: if that rolls back, job and key go with it. A batch cannot be sealed between the look at it and the
-- insert, for there is one writer.
--
-- `args` are stored as they came. In jobs_enqueue_many an element's args may be a string that holds their JSON text, which
-- arrives character for character, or any other JSON value, which loses insignificant white space and nothing else.
--
--     INSERT INTO jobs_enqueue (name, args, options, id) VALUES ('welcome', '{"user_id": 1}', '{"delay_ms": 300000}', NULL)
--       RETURNING (SELECT id FROM jobs_enqueued);
--     INSERT INTO jobs_enqueue_many (jobs) VALUES ('[{"name": "welcome", "args": {"user_id": 1}}, {"name": "tidy"}]');
--     SELECT position, id, inserted FROM jobs_enqueued;

DROP VIEW IF EXISTS jobs_enqueued;
CREATE VIEW jobs_enqueued (position, id, inserted) AS
SELECT position, id, accepted
  FROM jobs__replies
 WHERE position >= 0;

-- A new UUIDv7: 48 bits of milliseconds, 32 of a row count so that ids of one millisecond sort as they were made, 42 random.
DROP VIEW IF EXISTS jobs__new_id;
CREATE VIEW jobs__new_id (id) AS
SELECT printf('%08x-%04x-7%03x-%04x-%012x',
              now >> 16,
              now & 65535,
              count >> 20 & 4095,
              count >> 6 & 16383 | 32768,
              (count & 63) << 42 | (random() & 4398046511103))
  FROM (SELECT now, coalesce((SELECT max(rowid) FROM jobs), 0) AS count FROM jobs_clock);

DROP VIEW IF EXISTS jobs_enqueue;
CREATE VIEW jobs_enqueue (name, args, options, id) AS
SELECT NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs_enqueue_called INSTEAD OF INSERT ON jobs_enqueue
BEGIN
    DELETE FROM jobs__replies;

    INSERT INTO jobs__enqueue (position, name, args, options, id)
    VALUES (0, new.name, coalesce(new.args, '{}'), coalesce(new.options, '{}'), new.id);
END;

DROP VIEW IF EXISTS jobs_enqueue_many;
CREATE VIEW jobs_enqueue_many (jobs) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs_enqueue_many_called INSTEAD OF INSERT ON jobs_enqueue_many
BEGIN
    DELETE FROM jobs__replies;

    SELECT CASE WHEN typeof(new.jobs) <> 'text' OR NOT json_valid(new.jobs)
                THEN RAISE(ABORT, 'PJ002 the jobs, or the args of one of them, are not JSON; give an array of {name, args, options, id}')
                WHEN json_type(new.jobs) <> 'array'
                THEN RAISE(ABORT, 'PJ003 the jobs are not an array; give an array of {name, args, options, id}') END;

    SELECT CASE WHEN job.type <> 'object'
                THEN RAISE(ABORT, 'PJ003 one of the jobs is not an object; give {name, args, options, id}')
                WHEN EXISTS (SELECT 1 FROM json_each(job.value) WHERE key NOT IN ('name', 'args', 'options', 'id'))
                THEN RAISE(ABORT, 'PJ003 there is no such option in jobs; options: name, args, options, id')
                WHEN json_type(job.value, '$.name') NOT IN ('text', 'null')
                THEN RAISE(ABORT, 'PJ003 the name of one of the jobs is not text; give the name of a defined job') END
      FROM json_each(new.jobs) AS job;

    INSERT INTO jobs__check_object (options)
    SELECT value
      FROM json_each(new.jobs);

    INSERT INTO jobs__enqueue (position, name, args, options, id)
    SELECT key,
           value ->> 'name',
           CASE json_type(value, '$.args') WHEN 'text' THEN value ->> 'args'
                                           WHEN 'null' THEN '{}'
                                           ELSE coalesce(value -> 'args', '{}') END,
           CASE json_type(value, '$.options') WHEN 'null' THEN '{}' ELSE coalesce(value -> 'options', '{}') END,
           value ->> 'id'
      FROM json_each(new.jobs);
END;

-- One job of a call: refused, or offered with everything that its definition and options say of it.
DROP VIEW IF EXISTS jobs__enqueue;
CREATE VIEW jobs__enqueue (position, name, args, options, id) AS
SELECT NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__enqueue_called INSTEAD OF INSERT ON jobs__enqueue
BEGIN
    SELECT CASE WHEN coalesce(length(new.name), 0) NOT BETWEEN 1 AND 190 OR instr(new.name, char(0)) > 0
                THEN RAISE(ABORT, 'PJ010 the name is empty or too long; give the name of a defined job')
                WHEN NOT EXISTS (SELECT 1 FROM jobs_definitions WHERE name = new.name)
                THEN RAISE(ABORT, 'PJ001 no job of that name is defined; see jobs_defined for the names that are')
                WHEN new.id IS NOT NULL AND (new.id NOT GLOB '????????-????-????-????-????????????'
                                             OR length(replace(new.id, '-', '')) <> 32
                                             OR replace(new.id, '-', '') GLOB '*[^0-9A-Fa-f]*')
                THEN RAISE(ABORT, 'PJ003 the id is not a UUID; give one, or leave it out') END;

    INSERT INTO jobs__check_args (args)
    VALUES (new.args);

    INSERT INTO jobs__check_options (options, taker)
    SELECT new.options, 'enqueue'
     WHERE new.options <> '{}';

    INSERT INTO jobs__offer
           (position, id, name, queue, priority, max_attempts, timeout_ms, run_at,
            unique_key, unique_for, tenant, batch_id, args, meta, now)
    SELECT new.position,
           coalesce(lower(new.id), (SELECT id FROM jobs__new_id)),
           new.name,
           coalesce(new.options ->> 'queue', d.queue),
           coalesce(new.options ->> 'priority', d.priority),
           coalesce(new.options ->> 'max_attempts', d.max_attempts),
           coalesce(new.options ->> 'timeout_ms', d.timeout_ms),
           CASE WHEN new.options ->> 'run_at' IS NULL
                THEN c.now + coalesce(new.options ->> 'delay_ms', 0)
                ELSE (SELECT ms FROM jobs__moment WHERE given = new.options -> 'run_at') END,
           new.options ->> 'unique_key',
           coalesce(new.options ->> 'unique_for', 'active'),
           new.options ->> 'tenant',
           lower(new.options ->> 'batch_id'),
           new.args,
           nullif(new.options -> 'meta', 'null'),
           c.now
      FROM jobs_clock AS c
     CROSS JOIN jobs_definitions AS d
     WHERE d.name = new.name;
END;

-- Refuses args that are not JSON text, or too large.
DROP VIEW IF EXISTS jobs__check_args;
CREATE VIEW jobs__check_args (args) AS
SELECT NULL WHERE false;

CREATE TRIGGER jobs__check_args_called INSTEAD OF INSERT ON jobs__check_args
BEGIN
    -- SQLite reads a text up to its first NUL, so what stands behind one has not been looked at.
    SELECT CASE WHEN typeof(new.args) <> 'text' OR NOT json_valid(new.args) OR instr(new.args, char(0)) > 0
                THEN RAISE(ABORT, 'PJ002 the args are not JSON; give JSON as text')
                WHEN length(CAST(new.args AS BLOB)) > (SELECT CAST(value AS INTEGER) FROM jobs_settings WHERE name = 'max_args_bytes')
                THEN RAISE(ABORT, 'PJ002 the args are too large; send a reference to the data, or raise the setting max_args_bytes') END;
END;

-- Inserts the job unless its id or unique key is there already, and answers which of the two it was.
DROP VIEW IF EXISTS jobs__offer;
CREATE VIEW jobs__offer
       (position, id, name, queue, priority, max_attempts, timeout_ms, run_at,
        unique_key, unique_for, tenant, batch_id, args, meta, now) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__offer_called INSTEAD OF INSERT ON jobs__offer
BEGIN
    INSERT INTO jobs__replies (position, id, accepted)
    SELECT new.position, coalesce(found, new.id), found IS NULL
      FROM (SELECT coalesce((SELECT id FROM jobs WHERE id = new.id),
                            (SELECT job_id FROM jobs_keys WHERE key = new.unique_key)) AS found);

    SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM jobs_batches WHERE id = new.batch_id)
                THEN RAISE(ABORT, 'PJ005 there is no such batch; open one with jobs_open_batch')
                WHEN (SELECT sealed_at FROM jobs_batches WHERE id = new.batch_id) IS NOT NULL
                THEN RAISE(ABORT, 'PJ004 the batch is sealed and takes no more jobs; open another') END
     WHERE new.batch_id IS NOT NULL
       AND (SELECT accepted FROM jobs__replies WHERE position = new.position);

    INSERT INTO jobs_keys (key, job_id, kept, since)
    SELECT new.unique_key, new.id, new.unique_for, new.now
     WHERE new.unique_key IS NOT NULL
       AND (SELECT accepted FROM jobs__replies WHERE position = new.position);

    INSERT INTO jobs__insert
           (id, name, queue, priority, max_attempts, timeout_ms, run_at, unique_key, tenant, batch_id, args, meta, now)
    SELECT new.id, new.name, new.queue, new.priority, new.max_attempts, new.timeout_ms, new.run_at,
           new.unique_key, new.tenant, new.batch_id, new.args, new.meta, new.now
     WHERE (SELECT accepted FROM jobs__replies WHERE position = new.position);
END;

-- Inserts one job, in the bucket that its definition says: no caller can choose another.
DROP VIEW IF EXISTS jobs__insert;
CREATE VIEW jobs__insert
       (id, name, queue, priority, max_attempts, timeout_ms, run_at, unique_key, tenant, batch_id, args, meta, now) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE false;

CREATE TRIGGER jobs__insert_called INSTEAD OF INSERT ON jobs__insert
BEGIN
    INSERT INTO jobs
           (id, name, queue, state, priority, run_at, bucket, max_attempts, timeout_ms,
            unique_key, tenant, batch_id, enqueued_at, args, meta)
    SELECT new.id, new.name, new.queue,
           CASE WHEN new.run_at > new.now THEN 'scheduled' ELSE 'pending' END,
           new.priority, new.run_at,
           CASE WHEN d.concurrency_key IS NULL THEN d.concurrency_group
                ELSE substr(d.concurrency_group || ':' || coalesce((SELECT value
                                                                      FROM jobs__value_at
                                                                     WHERE args = new.args
                                                                       AND path = json_quote(d.concurrency_key)
                                                                     LIMIT 1), 'null'), 1, 380) END,
           new.max_attempts, new.timeout_ms, new.unique_key, new.tenant, new.batch_id, new.now, new.args, new.meta
      FROM (SELECT 1)
      LEFT JOIN jobs_definitions AS d ON d.name = new.name;
END;
