-- jobs_enqueue, jobs_enqueue_many: put jobs in, inside the caller's transaction.
--
-- What makes a repeat safe: the primary key (an id that is there already is answered, not inserted again) and the
-- primary key of jobs_keys (a unique key can be held once). A key is inserted before its job; an insert that meets a
-- holder which is not committed yet waits for it, and goes in if that one rolls back. Keys go in sorted, so that
-- two bulk callers wait for one another in one direction only.
--
-- A batch is locked against sealing, not against counting (FOR KEY SHARE): its total, taken under FOR UPDATE, holds
-- every job whose enqueue was accepted.
--
-- Many jobs are one INSERT. What they share is read once: a draft for each name and options that occurs. Where anything
-- is wrong, the jobs are read one by one to find the first that is refused, and nothing has been written.

-- The args as they are stored: JSON of any kind, no longer than the setting allows.
CREATE OR REPLACE FUNCTION jobs__args(args text, place text)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    most  bigint := jobs__setting('max_args_bytes')::bigint;
BEGIN
    IF args IS NULL THEN
        RETURN '{}';
    ELSIF octet_length(args) > most THEN
        PERFORM jobs__refuse('PJ002', format('%s are %s bytes of JSON, more than max_args_bytes, which is %s', place, octet_length(args), most),
                             'keep the data elsewhere and pass its id, or raise the setting with jobs_set');
    ELSIF NOT jobs__is_json(args) THEN
        PERFORM jobs__refuse('PJ002', format('%s are not JSON', place), 'pass a JSON text such as {"user_id": 1}');
    END IF;
    RETURN args;
END
$$;

-- Args that stand inside a JSON document: a string holds their text, anything else is taken as it is written.
CREATE OR REPLACE FUNCTION jobs__inner_args(value text, place text)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF left(value, 1) <> '"' THEN
        RETURN jobs__args(value, place);
    ELSIF (SELECT s.mark <> '' FROM jobs__shield(value) AS s) THEN
        PERFORM jobs__refuse('PJ002', format('%s are not JSON', place), 'a character that no JSON may hold unescaped stands in them');
    END IF;
    RETURN jobs__args(value::json #>> '{}', place);
END
$$;

-- The job that a definition and options make, but for its id and args, and for how long its unique key is kept.
-- `scope` is the tenant in scope, NULL for none.
CREATE OR REPLACE FUNCTION jobs__draft(definition jobs_definitions, options text, place text, scope text, known text[],
                                       OUT job jobs, OUT kept text)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    key    text;
    value  text;
    delay  bigint;
BEGIN
    job.name := definition.name;
    job.queue := definition.queue;
    job.priority := definition.priority;
    job.max_attempts := definition.max_attempts;
    job.timeout_ms := definition.timeout_ms;
    job.tenant := scope;
    job.enqueued_at := jobs_now();

    FOR key, value IN
        SELECT m.key, m.value
          FROM jobs__members(options, place || 'options', known) AS m
         WHERE m.value IS NOT NULL OR m.key = 'tenant'
    LOOP
        CASE key
            WHEN 'queue' THEN job.queue := jobs__fit(jobs__text(value, place || key), place || key);
            WHEN 'priority' THEN job.priority := jobs__integer(value, place || key, -32768, 32767);
            WHEN 'max_attempts' THEN job.max_attempts := jobs__integer(value, place || key, 1, 2147483647);
            WHEN 'timeout_ms' THEN job.timeout_ms := jobs__duration(value, place || key, 1);
            WHEN 'run_at' THEN job.run_at := jobs__moment(value, place || key);
            WHEN 'delay_ms' THEN delay := jobs__duration(value, place || key);
            WHEN 'unique_key' THEN job.unique_key := jobs__fit(jobs__text(value, place || key), place || key);
            WHEN 'unique_for' THEN kept := jobs__text(value, place || key);
            WHEN 'tenant' THEN job.tenant := jobs__fit(jobs__text(value, place || key), place || key);
            WHEN 'batch_id' THEN job.batch_id := jobs__uuid(value, place || key);
            WHEN 'meta' THEN job.meta := jobs__object(value, place || key);
        END CASE;
    END LOOP;

    IF kept NOT IN ('active', 'row', 'ever') THEN
        PERFORM jobs__refuse('PJ003', format('%sunique_for is %s', place, to_json(kept)), 'it can be "active", "row" or "ever"');
    ELSIF job.unique_key ~ '^(schedule|batch):' THEN
        -- What fires a moment once must not be there for anybody to take.
        PERFORM jobs__refuse('PJ003', format('%sunique_key begins with schedule: or batch:', place), 'keys that begin so are the queue''s own: begin it otherwise');
    ELSIF kept IS NOT NULL AND job.unique_key IS NULL THEN
        PERFORM jobs__refuse('PJ003', format('%sunique_for is given without unique_key', place), 'say which key is to be unique');
    ELSIF delay IS NOT NULL AND job.run_at IS NOT NULL THEN
        PERFORM jobs__refuse('PJ003', format('%sdelay_ms and run_at are both given', place), 'a job runs at a moment or after a delay');
    ELSIF octet_length(job.meta) > 16384 THEN
        PERFORM jobs__refuse('PJ003', format('%smeta has %s bytes', place, octet_length(job.meta)), 'it can have 16384: put more into args');
    ELSIF job.tenant <> scope THEN
        PERFORM jobs__refuse('PJ009', format('%stenant is %s while %s is in scope', place, to_json(job.tenant), to_json(scope)),
                             'leave the scope first: RESET pyjobs.tenant');
    END IF;

    job.run_at := coalesce(job.run_at, job.enqueued_at + coalesce(delay, 0) * interval '1 millisecond');
    job.state := CASE WHEN job.run_at > job.enqueued_at THEN 'scheduled' ELSE 'pending' END;
    IF job.unique_key IS NOT NULL THEN
        kept := coalesce(kept, 'active');
    END IF;
END
$$;

-- The options that a producer may give.
CREATE OR REPLACE FUNCTION jobs__producer_options()
RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$ SELECT ARRAY['queue', 'priority', 'max_attempts', 'timeout_ms', 'run_at', 'delay_ms', 'unique_key', 'unique_for', 'tenant', 'batch_id', 'meta'] $$;

-- The tenant in scope of this session.
CREATE OR REPLACE FUNCTION jobs__scope()
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN jobs__fit(nullif(current_setting('pyjobs.tenant', true), ''), 'the tenant in scope');
END
$$;

-- Lock the batches that jobs are about to join against sealing.
CREATE OR REPLACE FUNCTION jobs__join_batches(ids uuid[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    batch  record;
    met    uuid[] := '{}';
BEGIN
    FOR batch IN
        SELECT b.id, b.sealed_at
          FROM jobs_batches b
         WHERE b.id = ANY (ids)
         ORDER BY b.id
           FOR KEY SHARE
    LOOP
        IF batch.sealed_at IS NOT NULL THEN
            PERFORM jobs__refuse('PJ004', format('the batch %s is sealed', batch.id), 'open another batch for more jobs');
        END IF;
        met := met || batch.id;
    END LOOP;
    IF NOT ids <@ met THEN
        PERFORM jobs__refuse('PJ005', format('there is no batch %s', (SELECT i FROM unnest(ids) AS i WHERE i <> ALL (met) LIMIT 1)),
                             'open it first with jobs_open_batch');
    END IF;
END
$$;

-- Take the unique keys of jobs; answers those that were free. Each of the others then has a holder, which this
-- transaction can see.
CREATE OR REPLACE FUNCTION jobs__take_keys(wanted jobs_keys[])
RETURNS text[]
LANGUAGE plpgsql
AS $$
DECLARE
    keys   text[] := ARRAY(SELECT w.key FROM unnest(wanted) AS w);
    taken  text[] := '{}';
    fresh  text[];
BEGIN
    LOOP
        WITH inserted AS (
            INSERT INTO jobs_keys (key, job_id, kept, since)
            SELECT w.key, w.job_id, w.kept, w.since
              FROM unnest(wanted) AS w
              LEFT JOIN (SELECT k.key FROM jobs_keys k WHERE k.key = ANY (keys)) AS held ON held.key = w.key
             WHERE held.key IS NULL
             ORDER BY w.key
            ON CONFLICT DO NOTHING
            RETURNING key
        )
        SELECT array_agg(i.key) INTO fresh FROM inserted i;
        taken := taken || fresh;
        -- A holder that was waited for may be gone by now, having let its key go.
        EXIT WHEN (SELECT count(*) FROM jobs_keys k WHERE k.key = ANY (keys)) = cardinality(keys);
    END LOOP;
    RETURN taken;
END
$$;

-- Put jobs in, in the order given: all of them but those whose id is there or whose key is held. `kept` says of each
-- how long its key is kept. Answers the id of each job that was asked for, or of the job that holds its key.
CREATE OR REPLACE FUNCTION jobs__admit(fresh jobs[], kept text[])
RETURNS TABLE (place bigint, id uuid, inserted boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    ids       uuid[] := ARRAY(SELECT f.id FROM unnest(fresh) AS f);
    entering  bigint[];
    wanted    jobs_keys[];
    taken     text[] := '{}';
    born      uuid[];
    lost      uuid[];
    waking    boolean;
    answers   uuid[];
    entered   boolean[];
    unmet     integer[];
    late      record;
BEGIN
    IF EXISTS (SELECT FROM unnest(fresh) AS f WHERE f.unique_key IS NOT NULL OR f.batch_id IS NOT NULL) THEN
        -- Those to go in: the first of each id that is not there, and of these the first of each key.
        WITH known AS (
            SELECT j.id FROM jobs j WHERE j.id = ANY (ids)
        ), first_of_id AS (
            SELECT DISTINCT ON (f.id) f.id, f.unique_key, f.enqueued_at, f.unnest AS kept, f.ordinality AS place
              FROM unnest(fresh, kept) WITH ORDINALITY AS f
              LEFT JOIN known k ON k.id = f.id
             WHERE k.id IS NULL
             ORDER BY f.id, f.ordinality
        ), ranked AS (
            SELECT f.*, row_number() OVER (PARTITION BY f.unique_key ORDER BY f.place) AS rank
              FROM first_of_id f
        )
        SELECT coalesce(array_agg(r.place), '{}'),
               array_agg(ROW(r.unique_key, r.id, r.kept, r.enqueued_at)::jobs_keys) FILTER (WHERE r.unique_key IS NOT NULL)
          INTO entering, wanted
          FROM ranked r
         WHERE r.unique_key IS NULL OR r.rank = 1;

        IF wanted IS NOT NULL THEN
            taken := jobs__take_keys(wanted);
            entering := ARRAY(
                SELECT e.place
                  FROM unnest(entering) AS e(place)
                  JOIN unnest(fresh) WITH ORDINALITY AS f ON f.ordinality = e.place
                  LEFT JOIN unnest(taken) AS t(key) ON t.key = f.unique_key
                 WHERE f.unique_key IS NULL OR t.key IS NOT NULL);
        END IF;

        PERFORM jobs__join_batches(ARRAY(
            SELECT DISTINCT f.batch_id
              FROM unnest(entering) AS e(place)
              JOIN unnest(fresh) WITH ORDINALITY AS f ON f.ordinality = e.place
             WHERE f.batch_id IS NOT NULL));
    END IF;

    WITH inserted AS (
        INSERT INTO jobs (id, name, queue, state, priority, run_at, bucket, max_attempts, timeout_ms, unique_key, tenant, batch_id, enqueued_at, args, meta)
        SELECT f.id, f.name, f.queue, f.state, f.priority, f.run_at, f.bucket, f.max_attempts, f.timeout_ms, f.unique_key, f.tenant, f.batch_id, f.enqueued_at, f.args, f.meta
          FROM unnest(fresh) WITH ORDINALITY AS f
         WHERE entering IS NULL OR f.ordinality IN (SELECT e.place FROM unnest(entering) AS e(place))
        ON CONFLICT (id) DO NOTHING
        RETURNING id, state
    )
    SELECT array_agg(i.id), bool_or(i.state = 'pending') INTO born, waking FROM inserted i;

    IF waking THEN
        PERFORM jobs__notify();
    END IF;
    IF cardinality(born) = cardinality(fresh) THEN
        RETURN QUERY SELECT f.n, f.id, true FROM unnest(ids) WITH ORDINALITY AS f(id, n);
        RETURN;
    END IF;

    -- The same id may have gone in elsewhere between the look at it and the insert: then its key is not needed here.
    IF taken <> '{}' THEN
        lost := ARRAY(
            SELECT f.id
              FROM unnest(entering) AS e(place)
              JOIN unnest(fresh) WITH ORDINALITY AS f ON f.ordinality = e.place
             WHERE f.unique_key IS NOT NULL
            EXCEPT
            SELECT unnest(born));
        DELETE FROM jobs_keys k WHERE k.job_id = ANY (lost) AND k.key = ANY (taken);
    END IF;

    SELECT array_agg(CASE WHEN j.id IS NOT NULL THEN f.id ELSE k.job_id END ORDER BY f.ordinality),
           array_agg(b.id IS NOT NULL AND f.rank = 1 ORDER BY f.ordinality)
      INTO answers, entered
      FROM (SELECT u.id, u.unique_key, u.ordinality, row_number() OVER (PARTITION BY u.id ORDER BY u.ordinality) AS rank
              FROM unnest(fresh) WITH ORDINALITY AS u) AS f
      LEFT JOIN (SELECT n.id FROM jobs n WHERE n.id = ANY (ids)) AS j ON j.id = f.id
      LEFT JOIN (SELECT h.key, h.job_id
                   FROM jobs_keys h
                  WHERE h.key = ANY (ARRAY(SELECT f.unique_key FROM unnest(fresh) AS f WHERE f.unique_key IS NOT NULL))
                ) AS k ON k.key = f.unique_key
      LEFT JOIN unnest(born) AS b(id) ON b.id = f.id;

    -- Whoever held a key may have let it go since it was met. A job that is left without an answer goes in after all.
    unmet := array_positions(answers, NULL);
    IF unmet <> '{}' THEN
        FOR late IN
            SELECT o.place, a.id, a.inserted
              FROM jobs__admit(ARRAY(SELECT fresh[o.place] FROM unnest(unmet) WITH ORDINALITY AS o(place, n) ORDER BY o.n),
                               ARRAY(SELECT kept[o.place] FROM unnest(unmet) WITH ORDINALITY AS o(place, n) ORDER BY o.n)) AS a
              JOIN unnest(unmet) WITH ORDINALITY AS o(place, n) ON o.n = a.place
        LOOP
            answers[late.place] := late.id;
            entered[late.place] := late.inserted;
        END LOOP;
    END IF;
    RETURN QUERY SELECT a.n, a.id, a.inserted FROM unnest(answers, entered) WITH ORDINALITY AS a(id, inserted, n) ORDER BY a.n;
END
$$;

CREATE OR REPLACE FUNCTION jobs_enqueue(name text, args text DEFAULT '{}', options text DEFAULT NULL, id uuid DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    new_id      uuid := coalesce(jobs_enqueue.id, jobs__id(jobs__id_prefix(), 0));
    definition  jobs_definitions;
    draft       record;
    job         jobs;
BEGIN
    -- What most calls are, in one statement: a job as its definition says. Whatever it does not put in is gone into below.
    IF options IS NULL AND coalesce(current_setting('pyjobs.tenant', true), '') = '' THEN
        INSERT INTO jobs (id, name, queue, state, priority, run_at, bucket, max_attempts, timeout_ms, enqueued_at, args)
        SELECT new_id, d.name, d.queue, 'pending', d.priority, jobs_now(),
               CASE WHEN d.concurrency_group IS NOT NULL THEN jobs__bucket(d.concurrency_group, d.concurrency_key, jobs_enqueue.args COLLATE "C") END,
               d.max_attempts, d.timeout_ms, jobs_now(), jobs_enqueue.args
          FROM jobs_definitions d
         WHERE d.name = jobs_enqueue.name COLLATE "C"
           AND octet_length(jobs_enqueue.args) <= (SELECT s.value::bigint FROM jobs_settings s WHERE s.name = 'max_args_bytes')
           AND jobs__is_json(jobs_enqueue.args)
        ON CONFLICT ON CONSTRAINT jobs_pkey DO NOTHING;
        IF FOUND THEN
            PERFORM jobs__notify();
            RETURN new_id;
        END IF;
    END IF;

    definition := jobs__defined(name COLLATE "C", 'name');
    draft := jobs__draft(definition, options COLLATE "C", '', jobs__scope(), jobs__producer_options());
    job := draft.job;
    job.id := new_id;
    job.args := jobs__args(jobs_enqueue.args COLLATE "C", 'args');
    job.bucket := jobs__bucket(definition.concurrency_group, definition.concurrency_key, job.args);

    IF job.unique_key IS NOT NULL OR job.batch_id IS NOT NULL THEN
        RETURN (SELECT a.id FROM jobs__admit(ARRAY[job], ARRAY[draft.kept]) AS a);
    END IF;

    INSERT INTO jobs (id, name, queue, state, priority, run_at, bucket, max_attempts, timeout_ms, tenant, enqueued_at, args, meta)
    VALUES (job.id, job.name, job.queue, job.state, job.priority, job.run_at, job.bucket, job.max_attempts, job.timeout_ms, job.tenant, job.enqueued_at, job.args, job.meta)
    ON CONFLICT ON CONSTRAINT jobs_pkey DO NOTHING;
    IF FOUND AND job.state = 'pending' THEN
        PERFORM jobs__notify();
    END IF;
    RETURN job.id;
END
$$;

-- Refuses the first of many jobs that cannot be taken, and says which it is.
CREATE OR REPLACE FUNCTION jobs__examine(jobs text, scope text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    element     record;
    place       text;
    key         text;
    value       text;
    name        text;
    options     text;
BEGIN
    IF NOT jobs__is_json(jobs) THEN
        PERFORM jobs__refuse('PJ002', 'the jobs, or the args of one of them, are not JSON', 'pass a JSON array of {"name", "args", "options", "id"}');
    ELSIF json_typeof(jobs::json) <> 'array' THEN
        PERFORM jobs__refuse('PJ003', 'jobs is not a JSON array', 'pass an array of {"name", "args", "options", "id"}');
    END IF;

    FOR element IN SELECT e.value::text AS job, e.n - 1 AS n FROM json_array_elements(jobs::json) WITH ORDINALITY AS e(value, n) LOOP
        place := format('jobs[%s].', element.n);
        name := NULL;
        options := NULL;
        FOR key, value IN
            SELECT m.key, m.value FROM jobs__members(element.job, rtrim(place, '.'), ARRAY['name', 'args', 'options', 'id']) AS m
        LOOP
            CASE key
                WHEN 'name' THEN name := jobs__text(value, place || key);
                WHEN 'args' THEN PERFORM jobs__inner_args(value, place || key);
                WHEN 'options' THEN options := value;
                WHEN 'id' THEN PERFORM jobs__uuid(value, place || key);
            END CASE;
        END LOOP;
        PERFORM jobs__draft(jobs__defined(name, place || 'name'), options, place, scope, jobs__producer_options());
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION jobs_enqueue_many(jobs text)
RETURNS TABLE ("position" integer, id uuid, inserted boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
SET work_mem = '64MB'  -- thousands of jobs are sorted and held in memory, not in files
AS $$
DECLARE
    most      bigint := jobs__setting('max_args_bytes')::bigint;
    scope     text COLLATE "C" := jobs__scope();
    prefix    text := jobs__id_prefix();
    shielded  record := jobs__shield(jobs COLLATE "C");
    fresh     jobs[];
    kept      text[] COLLATE "C";
    flawed    boolean;
BEGIN
    BEGIN
        WITH element AS MATERIALIZED (
            SELECT e.place,
                   r.id,
                   r.name,
                   coalesce(replace(r.options::text, shielded.mark, '\u'), '{}') AS options,
                   CASE WHEN r.args IS NULL THEN '{}'
                        WHEN left(r.args::text, 1) = '"' THEN r.args #>> '{}'
                        ELSE replace(r.args::text, shielded.mark, '\u') END AS args,
                   (SELECT bool_or(k NOT IN ('name', 'args', 'options', 'id')) OR count(*) > count(DISTINCT k) FROM json_object_keys(e.value) AS k) AS strange
              FROM json_array_elements(shielded.body::json) WITH ORDINALITY AS e(value, place)
             CROSS JOIN LATERAL json_to_record(e.value) AS r(name text, args json, options json, id uuid)
        ), draft AS MATERIALIZED (
            SELECT s.options, (s.definition).concurrency_group AS bound, (s.definition).concurrency_key AS key, d.kept, (d.job).*
              FROM (SELECT n.name, n.options, jobs__defined(n.name, 'name') AS definition
                      FROM (SELECT DISTINCT e.name, e.options FROM element e) AS n) AS s
             CROSS JOIN LATERAL jobs__draft(s.definition, s.options, '', scope, jobs__producer_options()) AS d
        )
        SELECT array_agg(
                   ROW(coalesce(e.id, jobs__id(prefix, e.place)), e.name, d.queue, d.state, d.priority, d.run_at,
                       CASE WHEN d.key IS NULL THEN d.bound ELSE jobs__bucket(d.bound, d.key, e.args) END,
                       NULL, 0, d.max_attempts, d.timeout_ms, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                       d.unique_key, d.tenant, d.batch_id, d.enqueued_at, e.args, d.meta)::jobs
                   ORDER BY e.place),
               array_agg(d.kept ORDER BY e.place),
               bool_or(e.strange OR octet_length(e.args) > most OR e.args::json IS NULL
                       OR (shielded.mark <> '' AND strpos(e.args, shielded.mark) > 0))
          INTO fresh, kept, flawed
          FROM element e
          JOIN draft d ON d.name = e.name AND d.options = e.options;
    EXCEPTION
        WHEN OTHERS THEN
            PERFORM jobs__examine(jobs COLLATE "C", scope);
            RAISE;
    END;
    IF jobs IS NULL THEN
        PERFORM jobs__refuse('PJ002', 'jobs is missing', 'pass a JSON array of {"name", "args", "options", "id"}');
    ELSIF flawed THEN
        PERFORM jobs__examine(jobs COLLATE "C", scope);
    ELSIF fresh IS NULL THEN
        RETURN;
    END IF;

    RETURN QUERY SELECT (a.place - 1)::integer, a.id, a.inserted FROM jobs__admit(fresh, kept) AS a;
END
$$;
