-- jobs_open_batch, jobs_seal_batch, jobs_advance_batch: jobs that are counted together, and a callback after the last.
--
-- Everything about a batch happens under its row's lock. The transaction that ends a job counts it there; sealing takes
-- the total while no enqueue into the batch is under way; whoever finds `done` equal to `total` finishes it and puts the
-- callback in, in the same transaction. `finished_at IS NULL` under the lock is what makes that once.
--
-- The callback goes in by itself, not through jobs_enqueue: whatever has become of its definition since the batch was
-- opened, it cannot make the outcome of somebody else's job fail.

CREATE OR REPLACE FUNCTION jobs__callback_options()
RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$ SELECT ARRAY['queue', 'priority', 'max_attempts', 'timeout_ms', 'run_at', 'delay_ms', 'tenant', 'meta'] $$;

-- The meta of a callback: what its options say, and the counts as the last member, so that they are what counts.
CREATE OR REPLACE FUNCTION jobs__callback_meta(batch jobs_batches, meta text)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    counts  text := json_build_object('batch', json_build_object(
        'id', batch.id, 'name', batch.name, 'total', batch.total, 'done', batch.done, 'failed', batch.failed, 'succeeded', batch.done - batch.failed));
BEGIN
    IF meta IS NULL OR meta ~ '^\{\s*\}$' THEN
        RETURN counts;
    END IF;
    RETURN left(meta, -1) || ', ' || right(counts, -1);
END
$$;

CREATE OR REPLACE FUNCTION jobs__finish_batch(batch jobs_batches)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    definition  jobs_definitions;
    job         jobs;
BEGIN
    IF batch.callback IS NOT NULL THEN
        definition := jobs__definition(batch.callback);
        SELECT (d.job).* INTO job
          FROM jobs__draft(definition, batch.callback_options, 'callback.options.', NULL, jobs__callback_options()) AS d;
        job.id := jobs__id(jobs__id_prefix(), 0);
        job.tenant := batch.tenant;
        job.args := batch.callback_args;
        job.meta := jobs__callback_meta(batch, job.meta);
        job.bucket := jobs__bucket(definition.concurrency_group, definition.concurrency_key, job.args);
        PERFORM jobs__admit(ARRAY[job], NULL);
    END IF;

    UPDATE jobs_batches b
       SET finished_at = jobs_now(),
           callback_id = job.id
     WHERE b.id = batch.id;
END
$$;

-- Count jobs that ended into their batches (by = 1), or out of them again as they are put back (by = -1). Batches are
-- taken in the order of their ids.
CREATE OR REPLACE FUNCTION jobs__tally(batch_ids uuid[], failed boolean[], by integer)
RETURNS void
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    counted  record;
    batch    jobs_batches;
BEGIN
    FOR counted IN
        SELECT t.id, by * count(*) AS done, by * count(*) FILTER (WHERE t.failed) AS failed
          FROM unnest(batch_ids, jobs__tally.failed) AS t(id, failed)
         GROUP BY t.id
         ORDER BY t.id
    LOOP
        UPDATE jobs_batches b
           SET done = b.done + counted.done,
               failed = b.failed + counted.failed
         WHERE b.id = counted.id
        RETURNING b.* INTO batch;
        IF batch.done = batch.total AND batch.finished_at IS NULL THEN
            PERFORM jobs__finish_batch(batch);
        END IF;
    END LOOP;
END
$$;

-- The batch under its lock.
CREATE OR REPLACE FUNCTION jobs__lock_batch(batch_id uuid)
RETURNS jobs_batches
LANGUAGE plpgsql
AS $$
DECLARE
    batch  jobs_batches;
BEGIN
    SELECT b.* INTO batch FROM jobs_batches b WHERE b.id = batch_id FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM jobs__refuse('PJ005', format('there is no batch %s', batch_id), 'open it first with jobs_open_batch; a finished one is pruned after a day');
    END IF;
    RETURN batch;
END
$$;

-- What callers are told of a batch.
CREATE OR REPLACE FUNCTION jobs__batch(batch_id uuid)
RETURNS TABLE (id uuid, name text, tenant text, callback text, callback_id uuid, total integer, done integer, failed integer,
               opened_at timestamptz, sealed_at timestamptz, finished_at timestamptz)
LANGUAGE sql STABLE
AS $$
    SELECT b.id, b.name, b.tenant, b.callback, b.callback_id, b.total, b.done, b.failed, b.opened_at, b.sealed_at, b.finished_at
      FROM jobs_batches b
     WHERE b.id = batch_id
$$;

CREATE OR REPLACE FUNCTION jobs__read_callback(options text, scope text, OUT name text, OUT args text, OUT options_text text)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    key    text;
    value  text;
BEGIN
    args := '{}';
    options_text := '{}';
    FOR key, value IN
        SELECT m.key, m.value FROM jobs__members(options, 'callback', ARRAY['name', 'args', 'options']) AS m WHERE m.value IS NOT NULL
    LOOP
        CASE key
            WHEN 'name' THEN name := jobs__text(value, 'callback.name');
            WHEN 'args' THEN args := jobs__inner_args(value, 'callback.args');
            WHEN 'options' THEN options_text := jobs__object(value, 'callback.options');
        END CASE;
    END LOOP;

    IF name IS NULL THEN
        PERFORM jobs__refuse('PJ003', 'callback.name is missing', 'name the job that is to run after the batch');
    END IF;
    PERFORM jobs__draft(jobs__defined(name, 'callback.name'), options_text, 'callback.options.', scope, jobs__callback_options());
END
$$;

CREATE OR REPLACE FUNCTION jobs_open_batch(options text DEFAULT NULL)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_variable
DECLARE
    scope     text COLLATE "C" := jobs__scope();
    batch     jobs_batches;
    callback  record;
    key       text COLLATE "C";
    value     text COLLATE "C";
BEGIN
    batch.tenant := scope;
    FOR key, value IN
        SELECT m.key, m.value
          FROM jobs__members(options COLLATE "C", 'options', ARRAY['name', 'callback', 'id', 'tenant']) AS m
         WHERE m.value IS NOT NULL OR m.key = 'tenant'
    LOOP
        CASE key
            WHEN 'name' THEN batch.name := jobs__fit(jobs__text(value, key), key);
            WHEN 'id' THEN batch.id := jobs__uuid(value, key);
            WHEN 'tenant' THEN batch.tenant := jobs__fit(jobs__text(value, key), key);
            WHEN 'callback' THEN
                callback := jobs__read_callback(value, scope);
                batch.callback := callback.name;
                batch.callback_args := callback.args;
                batch.callback_options := callback.options_text;
        END CASE;
    END LOOP;
    IF batch.tenant <> scope THEN
        PERFORM jobs__refuse('PJ009', format('tenant is %s while %s is in scope', to_json(batch.tenant), to_json(scope)), 'leave the scope first: RESET pyjobs.tenant');
    END IF;

    batch.id := coalesce(batch.id, jobs__id(jobs__id_prefix(), 0));
    INSERT INTO jobs_batches (id, name, tenant, callback, callback_args, callback_options, opened_at)
    VALUES (batch.id, batch.name, batch.tenant, batch.callback, batch.callback_args, batch.callback_options, jobs_now())
    ON CONFLICT DO NOTHING;
    RETURN batch.id;
END
$$;

CREATE OR REPLACE FUNCTION jobs_seal_batch(batch_id uuid)
RETURNS TABLE (id uuid, name text, tenant text, callback text, callback_id uuid, total integer, done integer, failed integer,
               opened_at timestamptz, sealed_at timestamptz, finished_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    batch  jobs_batches := jobs__lock_batch(batch_id);
BEGIN
    IF batch.sealed_at IS NULL THEN
        -- The total holds every job that was accepted: a snapshot from before the lock might lack one of them.
        IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
            PERFORM jobs__refuse('25001', format('the batch %s cannot be sealed in a transaction that is %s',
                                                 batch_id, upper(current_setting('transaction_isolation'))),
                                 'seal it in a READ COMMITTED transaction, after the one that enqueued its jobs');
        END IF;
        UPDATE jobs_batches b
           SET sealed_at = jobs_now(),
               total = b.done + (SELECT count(*)
                                   FROM jobs j
                                  WHERE j.batch_id = jobs_seal_batch.batch_id
                                    AND j.state NOT IN ('done', 'dead', 'cancelled'))
         WHERE b.id = jobs_seal_batch.batch_id
        RETURNING b.* INTO batch;
        IF batch.done = batch.total THEN
            PERFORM jobs__finish_batch(batch);
        END IF;
    END IF;
    RETURN QUERY SELECT b.* FROM jobs__batch(jobs_seal_batch.batch_id) AS b;
END
$$;

CREATE OR REPLACE FUNCTION jobs_advance_batch(batch_id uuid)
RETURNS TABLE (id uuid, name text, tenant text, callback text, callback_id uuid, total integer, done integer, failed integer,
               opened_at timestamptz, sealed_at timestamptz, finished_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    batch  jobs_batches := jobs__lock_batch(batch_id);
BEGIN
    IF batch.done = batch.total AND batch.finished_at IS NULL THEN
        PERFORM jobs__finish_batch(batch);
    END IF;
    RETURN QUERY SELECT b.* FROM jobs__batch(jobs_advance_batch.batch_id) AS b;
END
$$;
