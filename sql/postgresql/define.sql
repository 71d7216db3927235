-- jobs_define: inserts or changes what a job name stands for. jobs_forget: removes it.
--
-- A limit belongs to a group, and a group's row says it once: the foreign key from definitions to (name, slots) makes
-- two limits in one group impossible. Those who define in one group take turns behind the lock of its row, so that the
-- second one meets what the first did, and is refused (PJ008) where the two disagree.
--
-- Jobs that wait already get their bucket in the same transaction. Their rows are locked in the order of their ids, as
-- everywhere; a claim skips rows that are locked, and so neither waits for this nor deadlocks with it. A job whose
-- enqueuer read the old definition and commits after this is put right by the claim that meets it.
--
-- Where nothing changes nothing is written: workers call this whenever they start.

-- The definition; one of a name that is not defined has the defaults.
CREATE OR REPLACE FUNCTION jobs__definition(name text)
RETURNS jobs_definitions
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    definition  jobs_definitions;
BEGIN
    SELECT d.* INTO definition FROM jobs_definitions d WHERE d.name = jobs__definition.name;
    IF NOT FOUND THEN
        definition.name := jobs__definition.name;
        definition.queue := 'default';
        definition.priority := 0;
        definition.max_attempts := 5;
        definition.backoff_base_ms := 5000;
        definition.backoff_factor := 4;
        definition.backoff_max_ms := 3600000;
        definition.backoff_jitter := 0.15;
        definition.keep_done_ms := 86400000;
    END IF;
    RETURN definition;
END
$$;

-- The definition of a name that must be defined.
CREATE OR REPLACE FUNCTION jobs__defined(name text, place text)
RETURNS jobs_definitions
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    definition  jobs_definitions;
BEGIN
    SELECT d.* INTO definition FROM jobs_definitions d WHERE d.name = jobs__defined.name;
    IF NOT FOUND THEN
        PERFORM jobs__fit(coalesce(name, ''), place);
        PERFORM jobs__refuse(
            'PJ001',
            format('no job named %s is defined (%s)', to_json(name), place),
            coalesce('defined are ' || (SELECT string_agg(n.name, ', ' ORDER BY n.name)
                                          FROM (SELECT d.name FROM jobs_definitions d ORDER BY d.name LIMIT 100) AS n),
                     'nothing is defined yet: call jobs_define, or run pyjobs sync'));
    END IF;
    RETURN definition;
END
$$;

-- What a job is bounded by: its group alone, or the group and the scalar that stands at the path `key` in its args.
-- The value is cut so that a bucket fits into every engine's index: jobs whose values differ only behind the cut
-- share a bucket, which is stricter, never looser.
CREATE OR REPLACE FUNCTION jobs__bucket(bound text, key text, args text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    body   text := args;
    mark   text := '';
    value  json;
    step   text;
BEGIN
    IF bound IS NULL OR key IS NULL THEN
        RETURN bound;
    END IF;

    IF strpos(args, '\u') > 0 THEN
        SELECT s.body, s.mark INTO body, mark FROM jobs__shield(args) AS s;
    END IF;
    value := body;
    FOREACH step IN ARRAY string_to_array(key, '.') LOOP
        value := CASE json_typeof(value) WHEN 'object' THEN value -> step END;  -- `->` would look into a list as well
    END LOOP;

    RETURN bound || ':' || CASE
        WHEN value IS NULL OR json_typeof(value) IN ('null', 'object', 'array') THEN 'null'
        ELSE left(replace(value #>> '{}', mark, '\u'), 380)
    END;
END
$$;

CREATE OR REPLACE FUNCTION jobs__read_definition(name text, options text)
RETURNS jobs_definitions
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    wanted  jobs_definitions := jobs__definition(NULL);
    key     text;
    value   text;
BEGIN
    wanted.name := jobs__fit(coalesce(name, ''), 'name');

    FOR key, value IN
        SELECT m.key, m.value
          FROM jobs__members(options, 'options', ARRAY['queue', 'priority', 'max_attempts', 'timeout_ms', 'backoff',
                                                       'concurrency', 'keep_done_ms', 'keep_dead_ms']) AS m
         WHERE m.value IS NOT NULL
    LOOP
        CASE key
            WHEN 'queue' THEN wanted.queue := jobs__fit(jobs__text(value, key), key);
            WHEN 'priority' THEN wanted.priority := jobs__integer(value, key, -32768, 32767);
            WHEN 'max_attempts' THEN wanted.max_attempts := jobs__integer(value, key, 1, 2147483647);
            WHEN 'timeout_ms' THEN wanted.timeout_ms := jobs__duration(value, key, 1);
            WHEN 'keep_done_ms' THEN wanted.keep_done_ms := jobs__duration(value, key);
            WHEN 'keep_dead_ms' THEN wanted.keep_dead_ms := jobs__duration(value, key);
            WHEN 'backoff' THEN wanted := jobs__read_backoff(wanted, value);
            WHEN 'concurrency' THEN wanted := jobs__read_concurrency(wanted, value);
        END CASE;
    END LOOP;
    RETURN wanted;
END
$$;

CREATE OR REPLACE FUNCTION jobs__read_backoff(wanted jobs_definitions, options text)
RETURNS jobs_definitions
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    key    text;
    value  text;
BEGIN
    FOR key, value IN
        SELECT m.key, m.value
          FROM jobs__members(options, 'backoff', ARRAY['base_ms', 'factor', 'max_ms', 'jitter']) AS m
         WHERE m.value IS NOT NULL
    LOOP
        CASE key
            WHEN 'base_ms' THEN wanted.backoff_base_ms := jobs__duration(value, 'backoff.base_ms');
            WHEN 'factor' THEN wanted.backoff_factor := jobs__number(value, 'backoff.factor', 1, 1000000);
            WHEN 'max_ms' THEN wanted.backoff_max_ms := jobs__duration(value, 'backoff.max_ms');
            WHEN 'jitter' THEN wanted.backoff_jitter := jobs__number(value, 'backoff.jitter', 0, 1);
        END CASE;
    END LOOP;
    RETURN wanted;
END
$$;

CREATE OR REPLACE FUNCTION jobs__read_concurrency(wanted jobs_definitions, options text)
RETURNS jobs_definitions
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    key    text;
    value  text;
BEGIN
    wanted.concurrency_group := wanted.name;
    FOR key, value IN
        SELECT m.key, m.value
          FROM jobs__members(options, 'concurrency', ARRAY['limit', 'group', 'key']) AS m
         WHERE m.value IS NOT NULL
    LOOP
        CASE key
            WHEN 'limit' THEN wanted.concurrency_limit := jobs__integer(value, 'concurrency.limit', 1, 1000000);
            WHEN 'group' THEN wanted.concurrency_group := jobs__fit(jobs__text(value, 'concurrency.group'), 'concurrency.group');
            WHEN 'key' THEN wanted.concurrency_key := jobs__fit(jobs__text(value, 'concurrency.key'), 'concurrency.key');
        END CASE;
    END LOOP;

    IF wanted.concurrency_limit IS NULL THEN
        PERFORM jobs__refuse('PJ003', 'concurrency.limit is missing', 'say how many may run at once, such as {"limit": 1}');
    ELSIF strpos(wanted.concurrency_group, ':') > 0 THEN
        PERFORM jobs__refuse('PJ003', format('concurrency.group %s holds a colon', to_json(wanted.concurrency_group)),
                             'give the group a name without one: the colon parts it from the value of the key');
    END IF;
    RETURN wanted;
END
$$;

-- Make the group have that many slots, unless another definition of it says otherwise.
CREATE OR REPLACE FUNCTION jobs__bound_group(wanted jobs_definitions)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    slots  integer;
    other  text;
BEGIN
    INSERT INTO jobs_groups (name, slots)
    VALUES (wanted.concurrency_group, wanted.concurrency_limit)
    ON CONFLICT DO NOTHING;

    SELECT g.slots INTO slots
      FROM jobs_groups g
     WHERE g.name = wanted.concurrency_group
       FOR UPDATE;
    IF slots = wanted.concurrency_limit THEN
        RETURN;
    END IF;

    SELECT d.name INTO other
      FROM jobs_definitions d
     WHERE d.concurrency_group = wanted.concurrency_group
       AND d.name <> wanted.name
     ORDER BY d.name
     LIMIT 1;
    IF FOUND THEN
        PERFORM jobs__refuse(
            'PJ008',
            format('the group %s has the limit %s by the job %s, not %s', to_json(wanted.concurrency_group), slots, to_json(other), wanted.concurrency_limit),
            'give all jobs of a group one limit, or name another group');
    END IF;
    UPDATE jobs_groups g
       SET slots = wanted.concurrency_limit
     WHERE g.name = wanted.concurrency_group;
END
$$;

-- Put the waiting jobs of a definition into the buckets it says. The waiting are found by the indexes of waiting work,
-- whatever else the table holds.
CREATE OR REPLACE FUNCTION jobs__rebucket(definition jobs_definitions)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    WITH waiting AS (
        SELECT j.id, jobs__bucket(definition.concurrency_group, definition.concurrency_key, j.args) AS bucket
          FROM jobs j
         WHERE j.id = ANY (ARRAY(
                   SELECT p.id FROM jobs p WHERE p.state = 'pending' AND p.bucket IS NULL AND p.name = definition.name
                   UNION ALL
                   SELECT l.id FROM jobs l WHERE l.state = 'pending' AND l.bucket IS NOT NULL AND l.name = definition.name
                   UNION ALL
                   SELECT s.id FROM jobs s WHERE s.state = 'scheduled' AND s.name = definition.name))
           AND j.state IN ('scheduled', 'pending')
         ORDER BY j.id
           FOR UPDATE
    )
    UPDATE jobs j
       SET bucket = w.bucket
      FROM waiting w
     WHERE j.id = w.id
       AND j.bucket IS DISTINCT FROM w.bucket;
END
$$;

CREATE OR REPLACE FUNCTION jobs_define(name text, options text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    wanted  jobs_definitions := jobs__read_definition(name COLLATE "C", options COLLATE "C");
    former  jobs_definitions;
BEGIN
    SELECT d.* INTO former FROM jobs_definitions d WHERE d.name = wanted.name;
    IF former IS NOT DISTINCT FROM wanted THEN
        RETURN;
    END IF;

    SELECT d.* INTO former FROM jobs_definitions d WHERE d.name = wanted.name FOR UPDATE;
    IF wanted.concurrency_group IS NOT NULL THEN
        PERFORM jobs__bound_group(wanted);
    END IF;
    INSERT INTO jobs_definitions AS d
    SELECT wanted.*
    ON CONFLICT (name) DO UPDATE
       SET queue = excluded.queue,
           priority = excluded.priority,
           max_attempts = excluded.max_attempts,
           timeout_ms = excluded.timeout_ms,
           backoff_base_ms = excluded.backoff_base_ms,
           backoff_factor = excluded.backoff_factor,
           backoff_max_ms = excluded.backoff_max_ms,
           backoff_jitter = excluded.backoff_jitter,
           concurrency_group = excluded.concurrency_group,
           concurrency_limit = excluded.concurrency_limit,
           concurrency_key = excluded.concurrency_key,
           keep_done_ms = excluded.keep_done_ms,
           keep_dead_ms = excluded.keep_dead_ms;

    IF (former.concurrency_group, former.concurrency_key) IS DISTINCT FROM (wanted.concurrency_group, wanted.concurrency_key)
       OR former.name IS NULL
    THEN
        PERFORM jobs__rebucket(wanted);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION jobs_forget(name text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM jobs_definitions d WHERE d.name = jobs_forget.name COLLATE "C";
    RETURN FOUND;
END
$$;
