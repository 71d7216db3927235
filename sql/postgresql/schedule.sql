-- jobs_put_schedule, jobs_prune_schedules, jobs_tick_schedule: jobs at moments that come round.
--
-- Any number of workers may tick one moment. The schedule's row is locked and must still stand at `expected`: so one
-- of them fires, and the others find it moved on. The job goes in in the same transaction, under a key made of the
-- schedule and the moment that is kept while its row is there: a schedule put back to a moment that has fired does not
-- fire it again.
--
-- When a moment comes is for the caller to say (cron is read by the driver); that it has come is for the clock here.

CREATE OR REPLACE FUNCTION jobs__schedule_options()
RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$ SELECT ARRAY['queue', 'priority', 'max_attempts', 'timeout_ms', 'tenant', 'meta'] $$;

CREATE OR REPLACE FUNCTION jobs__read_schedule(name text, options text, next_run_at timestamptz, OUT schedule jobs_schedules, OUT on_off boolean)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    key    text;
    value  text;
BEGIN
    schedule.name := jobs__fit(coalesce(name, ''), 'name');
    schedule.next_run_at := next_run_at;
    schedule.timezone := 'UTC';
    schedule.args := '{}';
    schedule.options := '{}';
    FOR key, value IN
        SELECT m.key, m.value
          FROM jobs__members(options, 'options', ARRAY['job', 'cron', 'every_ms', 'timezone', 'args', 'options', 'source', 'enabled']) AS m
         WHERE m.value IS NOT NULL
    LOOP
        CASE key
            WHEN 'job' THEN schedule.job := jobs__text(value, key);
            WHEN 'cron' THEN schedule.cron := jobs__text(value, key);
            WHEN 'every_ms' THEN schedule.every_ms := jobs__duration(value, key, 1);
            WHEN 'timezone' THEN schedule.timezone := jobs__fit(jobs__text(value, key), key);
            WHEN 'args' THEN schedule.args := jobs__inner_args(value, key);
            WHEN 'options' THEN schedule.options := jobs__object(value, key);
            WHEN 'source' THEN schedule.source := jobs__fit(jobs__text(value, key), key);
            WHEN 'enabled' THEN on_off := jobs__boolean(value, key);
        END CASE;
    END LOOP;

    IF schedule.job IS NULL THEN
        PERFORM jobs__refuse('PJ003', 'job is missing', 'name the job that the schedule enqueues');
    ELSIF num_nonnulls(schedule.cron, schedule.every_ms) <> 1 OR trim(schedule.cron) = '' THEN
        PERFORM jobs__refuse('PJ011', format('the schedule %s has no timing, or two: it takes either cron or every_ms', to_json(name)),
                             'say {"cron": "0 3 * * *"} or {"every_ms": 900000}');
    ELSIF next_run_at IS NULL OR next_run_at NOT BETWEEN '0001-01-02 00:00+00' AND '9999-12-30 00:00+00' THEN  -- as jobs__moment
        PERFORM jobs__refuse('PJ011', format('the schedule %s has no next moment', to_json(name)), 'pass the moment at which it fires next');
    END IF;
    PERFORM jobs__draft(jobs__defined(schedule.job, 'job'), schedule.options, 'options.', NULL, jobs__schedule_options());
END
$$;

CREATE OR REPLACE FUNCTION jobs_put_schedule(name text, options text, next_run_at timestamptz)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    given   record := jobs__read_schedule(name COLLATE "C", coalesce(options, '{}') COLLATE "C", next_run_at);
    wanted  jobs_schedules := given.schedule;
BEGIN
    INSERT INTO jobs_schedules AS s (name, job, cron, every_ms, timezone, args, options, source, enabled, next_run_at)
    VALUES (wanted.name, wanted.job, wanted.cron, wanted.every_ms, wanted.timezone, wanted.args, wanted.options, wanted.source,
            coalesce(given.on_off, true), wanted.next_run_at)
    ON CONFLICT (name) DO UPDATE
       SET job = excluded.job,
           cron = excluded.cron,
           every_ms = excluded.every_ms,
           timezone = excluded.timezone,
           args = excluded.args,
           options = excluded.options,
           source = excluded.source,
           enabled = coalesce(given.on_off, s.enabled),
           next_run_at = CASE WHEN (s.cron, s.every_ms, s.timezone) IS NOT DISTINCT FROM (excluded.cron, excluded.every_ms, excluded.timezone)
                              THEN s.next_run_at
                              ELSE excluded.next_run_at END
     WHERE (s.job, s.cron, s.every_ms, s.timezone, s.args, s.options, s.source, s.enabled)
           IS DISTINCT FROM
           (excluded.job, excluded.cron, excluded.every_ms, excluded.timezone, excluded.args, excluded.options, excluded.source, coalesce(given.on_off, s.enabled));
END
$$;

-- `names` is a JSON array of those that the source still declares.
CREATE OR REPLACE FUNCTION jobs_prune_schedules(source text, names text DEFAULT '[]')
RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    declared  text[] COLLATE "C" := jobs__texts(CASE WHEN jobs__is_json(names) THEN names ELSE '' END COLLATE "C", 'names');
    pruned    integer;
BEGIN
    DELETE FROM jobs_schedules s
     WHERE s.name = ANY (ARRAY(
               SELECT p.name
                 FROM jobs_schedules p
                WHERE p.source = jobs_prune_schedules.source COLLATE "C"
                  AND p.name <> ALL (declared)
                ORDER BY p.name
                  FOR UPDATE));
    GET DIAGNOSTICS pruned = ROW_COUNT;
    RETURN pruned;
END
$$;

CREATE OR REPLACE FUNCTION jobs_tick_schedule(name text, expected timestamptz, next timestamptz)
RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    due         jobs_schedules;
    definition  jobs_definitions;
    job         jobs;
    fired       uuid;
BEGIN
    SELECT s.* INTO due
      FROM jobs_schedules s
     WHERE s.name = jobs_tick_schedule.name COLLATE "C"
       AND s.next_run_at = jobs_tick_schedule.expected
       AND s.next_run_at <= jobs_now()
       AND s.enabled
       FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF next <= jobs_now() OR next > '9999-12-30 00:00+00' OR next IS NULL THEN
        PERFORM jobs__refuse('PJ011', format('the next moment of the schedule %s is not after now, or too far', to_json(due.name)),
                             'pass the first moment after now, so that missed ones do not pile up');
    END IF;

    definition := jobs__defined(due.job, 'job');
    SELECT (d.job).* INTO job FROM jobs__draft(definition, due.options, 'options.', NULL, jobs__schedule_options()) AS d;
    job.id := jobs__id(jobs__id_prefix(), 0);
    job.args := due.args;
    job.bucket := jobs__bucket(definition.concurrency_group, definition.concurrency_key, job.args);
    job.unique_key := format('schedule:%s:%s', due.name, to_char(expected AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
    SELECT a.id INTO fired FROM jobs__admit(ARRAY[job], ARRAY['row']) AS a WHERE a.inserted;

    UPDATE jobs_schedules s
       SET next_run_at = jobs_tick_schedule.next,
           last_run_at = jobs_tick_schedule.expected,
           last_job_id = coalesce(fired, s.last_job_id)
     WHERE s.name = due.name;
    RETURN fired;
END
$$;
