-- jobs_retry, jobs_cancel, jobs_discard: put back, call off, delete. jobs_pause_queue, jobs_resume_queue, jobs_set.
--
-- All three choose their jobs by a filter and lock them in the order of their ids, waiting where need be: what is in
-- somebody's hands for a moment is not passed over. States are tested again under the lock. Then keys, then batches, in the
-- order that settling takes them.

-- The jobs a filter means, locked, of those in one of the states given, and of running ones those that are not flagged
-- yet. `named` is the id, where the filter names one.
--
-- The plan is made for each call, knowing which keys are given: by id it is a look-up, by nothing indexed it reads the
-- table, which an operator may.
CREATE OR REPLACE FUNCTION jobs__choose(filter text, states text[], OUT ids uuid[], OUT named uuid)
LANGUAGE plpgsql
SET enable_seqscan = on SET enable_bitmapscan = on SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_variable
DECLARE
    key          text;
    value        text;
    place        text;
    given        text[] := '{}';
    wanted       uuid[];
    state        text;
    queue        text;
    name         text;
    tenant       text;
    batch_id     uuid;
    dead_reason  text;
    before       timestamptz;
    most         bigint;
BEGIN
    FOR key, value IN
        SELECT m.key, m.value
          FROM jobs__members(coalesce(filter, '{}'), 'filter',
                             ARRAY['id', 'ids', 'state', 'queue', 'name', 'tenant', 'batch_id', 'dead_reason', 'before', 'limit']) AS m
         WHERE m.value IS NOT NULL OR m.key = 'tenant'
    LOOP
        given := given || key;
        place := 'filter.' || key;
        CASE key
            WHEN 'id' THEN named := jobs__uuid(value, place);
            WHEN 'ids' THEN wanted := ARRAY(SELECT jobs__uuid(to_json(i)::text, place) FROM unnest(jobs__texts(value, place)) AS i);
            WHEN 'state' THEN state := jobs__text(value, place);
            WHEN 'queue' THEN queue := jobs__text(value, place);
            WHEN 'name' THEN name := jobs__text(value, place);
            WHEN 'tenant' THEN tenant := jobs__text(value, place);
            WHEN 'batch_id' THEN batch_id := jobs__uuid(value, place);
            WHEN 'dead_reason' THEN dead_reason := jobs__text(value, place);
            WHEN 'before' THEN before := jobs__moment(value, place);
            WHEN 'limit' THEN most := jobs__integer(value, place, 0, 2147483647);
        END CASE;
    END LOOP;

    IF given <@ ARRAY['limit'] THEN
        PERFORM jobs__refuse('PJ003', 'the filter has no key', 'say which jobs are meant, such as {"state": "dead"}');
    ELSIF state NOT IN ('scheduled', 'pending', 'running', 'done', 'dead', 'cancelled') THEN
        PERFORM jobs__refuse('PJ003', format('filter.state is %s', to_json(left(state, 40))), 'the states are scheduled, pending, running, done, dead and cancelled');
    ELSIF dead_reason NOT IN ('exhausted', 'permanent', 'invalid_args', 'unknown_name', 'lost') THEN
        PERFORM jobs__refuse('PJ003', format('filter.dead_reason is %s', to_json(left(dead_reason, 40))), 'the reasons are exhausted, permanent, invalid_args, unknown_name and lost');
    END IF;

    ids := ARRAY(
        SELECT j.id
          FROM jobs j
         WHERE (named IS NULL OR j.id = named)
           AND (wanted IS NULL OR j.id = ANY (wanted))
           AND (state IS NULL OR j.state = state)
           AND (queue IS NULL OR j.queue = queue)
           AND (name IS NULL OR j.name = name)
           AND (batch_id IS NULL OR j.batch_id = batch_id)
           AND (dead_reason IS NULL OR j.dead_reason = dead_reason)
           AND (before IS NULL OR j.enqueued_at < before)
           AND ('tenant' <> ALL (given) OR j.tenant IS NOT DISTINCT FROM tenant)
           AND j.state = ANY (states)
           AND (j.state <> 'running' OR j.cancel_at IS NULL)
         ORDER BY j.id
         LIMIT most
           FOR UPDATE);
END
$$;

-- A job that was named by its id and not chosen because it is running is refused, not passed over.
CREATE OR REPLACE FUNCTION jobs__refuse_running(named uuid)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF EXISTS (SELECT FROM jobs j WHERE j.id = named AND j.state = 'running') THEN
        PERFORM jobs__refuse('PJ006', format('the job %s is running', named), 'cancel it with jobs_cancel, or wait until it has ended');
    END IF;
END
$$;

-- Of chosen jobs those that may be active again: they have no key, or have theirs, or got it now.
CREATE OR REPLACE FUNCTION jobs__regain_keys(ids uuid[])
RETURNS uuid[]
LANGUAGE plpgsql
AS $$
DECLARE
    wanted  jobs_keys[];
    taken   text[] := '{}';
BEGIN
    SELECT array_agg(ROW(w.unique_key, w.id, 'active', jobs_now())::jobs_keys) INTO wanted
      FROM (SELECT DISTINCT ON (j.unique_key) j.unique_key, j.id
              FROM jobs j
             WHERE j.id = ANY (ids)
               AND j.unique_key IS NOT NULL
               AND (SELECT k.job_id FROM jobs_keys k WHERE k.key = j.unique_key) IS DISTINCT FROM j.id
             ORDER BY j.unique_key, j.id) AS w;
    IF wanted IS NOT NULL THEN
        taken := jobs__take_keys(wanted);
    END IF;
    RETURN ARRAY(
        SELECT j.id
          FROM jobs j
         WHERE j.id = ANY (ids)
           AND (j.unique_key IS NULL OR (SELECT k.job_id FROM jobs_keys k WHERE k.key = j.unique_key) = j.id));
END
$$;

CREATE OR REPLACE FUNCTION jobs__read_moment(options text)
RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    key     text;
    value   text;
    moment  timestamptz;
    delay   bigint;
BEGIN
    FOR key, value IN
        SELECT m.key, m.value FROM jobs__members(options, 'options', ARRAY['run_at', 'delay_ms']) AS m WHERE m.value IS NOT NULL
    LOOP
        CASE key
            WHEN 'run_at' THEN moment := jobs__moment(value, key);
            WHEN 'delay_ms' THEN delay := jobs__duration(value, key);
        END CASE;
    END LOOP;
    IF moment IS NOT NULL AND delay IS NOT NULL THEN
        PERFORM jobs__refuse('PJ003', 'delay_ms and run_at are both given', 'a job runs at a moment or after a delay');
    END IF;
    RETURN coalesce(moment, jobs_now() + coalesce(delay, 0) * interval '1 millisecond');
END
$$;

CREATE OR REPLACE FUNCTION jobs_retry(filter text, options text DEFAULT NULL)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    moment    timestamptz := jobs__read_moment(options COLLATE "C");
    chosen    record := jobs__choose(filter COLLATE "C", ARRAY['dead', 'cancelled', 'done', 'scheduled']);
    free      uuid[];
    batches   uuid[];
    failures  boolean[];
BEGIN
    IF chosen.ids = '{}' THEN
        PERFORM jobs__refuse_running(chosen.named);
        RETURN 0;
    END IF;

    free := jobs__regain_keys(chosen.ids);
    IF free = '{}' AND chosen.named IS NOT NULL THEN
        PERFORM jobs__refuse(
            'PJ007',
            -- The holder may have let it go since.
            (SELECT format('the unique key %s of the job %s is held by %s', to_json(j.unique_key), j.id, coalesce('the job ' || k.job_id, 'another job'))
               FROM jobs j LEFT JOIN jobs_keys k ON k.key = j.unique_key WHERE j.id = chosen.named),
            'wait until that job has ended, or cancel it');
    END IF;

    SELECT array_agg(j.batch_id), array_agg(j.state <> 'done') INTO batches, failures
      FROM jobs j
     WHERE j.id = ANY (free)
       AND j.batch_id IS NOT NULL
       AND j.state <> 'scheduled';
    UPDATE jobs j
       SET state = CASE WHEN moment > jobs_now() THEN 'scheduled' ELSE 'pending' END,
           run_at = moment,
           attempts = 0,
           cancel_at = NULL,
           finished_at = NULL,
           dead_reason = NULL,
           bucket = CASE WHEN EXISTS (SELECT FROM jobs_definitions d WHERE d.name = j.name)
                         THEN (SELECT jobs__bucket(d.concurrency_group, d.concurrency_key, j.args) FROM jobs_definitions d WHERE d.name = j.name)
                         ELSE j.bucket END
     WHERE j.id = ANY (free);
    IF batches IS NOT NULL THEN
        PERFORM jobs__tally(batches, failures, -1);
    END IF;
    IF free <> '{}' AND moment <= jobs_now() THEN
        PERFORM jobs__notify();
    END IF;
    RETURN cardinality(free);
END
$$;

CREATE OR REPLACE FUNCTION jobs_cancel(filter text)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    chosen    record := jobs__choose(filter COLLATE "C", ARRAY['scheduled', 'pending', 'running']);
    ended     uuid[];
    batches   uuid[];
    flagged   integer;
BEGIN
    WITH cancelled AS (
        UPDATE jobs j
           SET state = 'cancelled',
               finished_at = jobs_now()
         WHERE j.id = ANY (chosen.ids)
           AND j.token IS NULL
        RETURNING j.id, j.batch_id
    )
    SELECT array_agg(c.id), array_agg(c.batch_id) FILTER (WHERE c.batch_id IS NOT NULL) INTO ended, batches FROM cancelled c;
    UPDATE jobs j
       SET cancel_at = jobs_now()
     WHERE j.id = ANY (chosen.ids)
       AND j.token IS NOT NULL;
    GET DIAGNOSTICS flagged = ROW_COUNT;

    DELETE FROM jobs_keys k WHERE k.job_id = ANY (ended) AND k.kept = 'active';
    IF batches IS NOT NULL THEN
        PERFORM jobs__tally(batches, array_fill(true, ARRAY[cardinality(batches)]), 1);
    END IF;
    RETURN coalesce(cardinality(ended), 0) + flagged;
END
$$;

CREATE OR REPLACE FUNCTION jobs_discard(filter text)
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    chosen   record := jobs__choose(filter COLLATE "C", ARRAY['scheduled', 'pending', 'done', 'dead', 'cancelled']);
    batches  uuid[];
BEGIN
    IF chosen.ids = '{}' THEN
        PERFORM jobs__refuse_running(chosen.named);
        RETURN 0;
    END IF;

    SELECT array_agg(j.batch_id) INTO batches
      FROM jobs j
     WHERE j.id = ANY (chosen.ids)
       AND j.batch_id IS NOT NULL
       AND j.finished_at IS NULL;
    PERFORM jobs__remove(chosen.ids);
    IF batches IS NOT NULL THEN
        PERFORM jobs__tally(batches, array_fill(true, ARRAY[cardinality(batches)]), 1);
    END IF;
    RETURN cardinality(chosen.ids);
END
$$;

CREATE OR REPLACE FUNCTION jobs_pause_queue(queue text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
    INSERT INTO jobs_paused (queue, paused_at)
    VALUES (jobs__fit(coalesce(jobs_pause_queue.queue, ''), 'queue'), jobs_now())
    ON CONFLICT DO NOTHING;
END
$$;

CREATE OR REPLACE FUNCTION jobs_resume_queue(queue text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
BEGIN
    DELETE FROM jobs_paused p WHERE p.queue = jobs__fit(coalesce(jobs_resume_queue.queue, ''), 'queue') COLLATE "C";
    IF FOUND THEN
        PERFORM jobs__notify();
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION jobs_set(name text, value text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
DECLARE
    given  text COLLATE "C" := nullif(value, 'null');
BEGIN
    CASE name COLLATE "C"
        WHEN 'max_args_bytes' THEN given := jobs__integer(coalesce(given, ''), name, 1, 104857600);
        WHEN 'keep_keys_ms' THEN given := coalesce(jobs__duration(given, name)::text, 'null');
        WHEN 'notify' THEN given := jobs__boolean(coalesce(given, ''), name);
        ELSE PERFORM jobs__refuse('PJ003', format('there is no setting %s', coalesce(to_json(name)::text, 'null')), 'the settings are max_args_bytes, keep_keys_ms and notify');
    END CASE;
    UPDATE jobs_settings s SET value = given WHERE s.name = jobs_set.name COLLATE "C";
END
$$;
