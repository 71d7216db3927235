-- jobs_settle, jobs_settle_many: what attempts came to.
--
-- Only the holder of the current token changes anything: the UPDATE asks for the token, and tests it again if it had to
-- wait for the row. So of a holder and whoever took the job from it, one settles. With the row go, in the same
-- transaction, its slot, its unique key, its place in a batch and, if it was the last there, the batch's callback.
--
-- A repeat is known by what the row keeps of the last outcome, and a failure by its line in jobs_failures as well.
--
-- The usual call, where everything is done and nothing else is to do, is one UPDATE and a probe for slots. A driver can
-- say it in columns rather than in JSON, and is answered only what this call did not settle: that costs half as much.
-- Rows are locked in the order of their ids. `j.id = ANY (…)` beside the join holds every plan to those rows.

-- How long the next attempt waits: base × factor^(attempt − 1), capped, times 1 ± jitter. The power is compared by its
-- logarithm first: after some hundred attempts it is no number any more.
CREATE OR REPLACE FUNCTION jobs__backoff(definition jobs_definitions, attempt integer)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    wait  double precision := definition.backoff_max_ms;
BEGIN
    IF definition.backoff_base_ms = 0 OR definition.backoff_max_ms = 0 THEN
        RETURN 0;
    ELSIF ln(definition.backoff_base_ms) + (attempt - 1) * ln(definition.backoff_factor) < ln(definition.backoff_max_ms) THEN
        wait := definition.backoff_base_ms * power(definition.backoff_factor, attempt - 1);
    END IF;
    RETURN round(wait * (1 + definition.backoff_jitter * (2 * random() - 1)));
END
$$;

-- Text for people to read: what no text can hold shows as a replacement character.
CREATE OR REPLACE FUNCTION jobs__prose(value text, place text)
RETURNS text
LANGUAGE plpgsql STABLE STRICT
AS $$
DECLARE
    shielded  record := jobs__shield(value);
BEGIN
    RETURN jobs__text(replace(shielded.body, shielded.mark, '\ufffd'), place);
END
$$;

CREATE OR REPLACE FUNCTION jobs__read_detail(outcome text, detail text, place text,
                                             OUT kind text, OUT permanent boolean, OUT wait_ms bigint, OUT type text, OUT message text, OUT stack text)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    key    text;
    value  text;
    known  text[] := CASE outcome
                         WHEN 'done' THEN ARRAY[]::text[]
                         WHEN 'released' THEN ARRAY[]::text[]
                         WHEN 'cancelled' THEN ARRAY['message']
                         WHEN 'snoozed' THEN ARRAY['delay_ms']
                         WHEN 'failed' THEN ARRAY['type', 'message', 'stack', 'kind', 'permanent', 'retry_in_ms']
                     END;
BEGIN
    IF known IS NULL THEN
        PERFORM jobs__refuse('PJ003', format('%soutcome is %s', place, coalesce(to_json(left(outcome, 40))::text, 'missing')),
                             'it can be "done", "failed", "released", "snoozed" or "cancelled"');
    END IF;

    kind := 'error';
    permanent := false;
    FOR key, value IN
        SELECT m.key, m.value FROM jobs__members(detail, place || 'detail', known) AS m WHERE m.value IS NOT NULL
    LOOP
        CASE key
            WHEN 'kind' THEN kind := jobs__text(value, place || 'detail.kind');
            WHEN 'permanent' THEN permanent := jobs__boolean(value, place || 'detail.permanent');
            WHEN 'retry_in_ms' THEN wait_ms := jobs__duration(value, place || 'detail.retry_in_ms');
            WHEN 'delay_ms' THEN wait_ms := jobs__duration(value, place || 'detail.delay_ms');
            WHEN 'type' THEN type := jobs__prose(value, place || 'detail.type');
            WHEN 'message' THEN message := jobs__prose(value, place || 'detail.message');
            WHEN 'stack' THEN stack := jobs__prose(value, place || 'detail.stack');
        END CASE;
    END LOOP;

    IF kind NOT IN ('error', 'timeout', 'invalid_args', 'unknown_name', 'lost') THEN
        PERFORM jobs__refuse('PJ003', format('%sdetail.kind is %s', place, to_json(left(kind, 40))),
                             'it can be "error", "timeout", "invalid_args", "unknown_name" or "lost"');
    ELSIF outcome = 'snoozed' AND wait_ms IS NULL THEN
        PERFORM jobs__refuse('PJ003', format('%sdetail.delay_ms is missing', place), 'say for how long, such as {"delay_ms": 60000}');
    END IF;
END
$$;

-- Delete rows with their failures, and let the keys go that were kept for them.
CREATE OR REPLACE FUNCTION jobs__remove(ids uuid[])
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM jobs j WHERE j.id = ANY (ids);
    DELETE FROM jobs_failures f WHERE f.job_id = ANY (ids);
    DELETE FROM jobs_keys k WHERE k.job_id = ANY (ids) AND k.kept <> 'ever';
END
$$;

-- What goes with settled rows: slots, the keys and batches of those that have ended, and the rows that are not kept.
CREATE OR REPLACE FUNCTION jobs__let_go(ids uuid[], keys text[], batches uuid[], failures boolean[], gone uuid[])
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM jobs_slots s WHERE s.job_id = ANY (ids);
    IF keys IS NOT NULL THEN
        DELETE FROM jobs_keys k WHERE k.key = ANY (keys) AND k.job_id = ANY (ids) AND k.kept = 'active';
    END IF;
    IF gone IS NOT NULL THEN
        PERFORM jobs__remove(gone);
    END IF;
    IF batches IS NOT NULL THEN
        PERFORM jobs__tally(batches, failures, 1);
    END IF;
END
$$;

-- Settle attempts that are done: answers those that were held, as columns.
CREATE OR REPLACE FUNCTION jobs__settle_done(INOUT ids uuid[], INOUT tokens uuid[])
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    keys      text[];
    batches   uuid[];
    gone      uuid[];
    fleeting  text[] := ARRAY(SELECT d.name FROM jobs_definitions d WHERE d.keep_done_ms = 0);
BEGIN
    WITH settled AS (
        UPDATE jobs j
           SET state = 'done',
               token = NULL,
               worker = NULL,
               lease_until = NULL,
               settled_token = o.token,
               settled_as = 'done',
               finished_at = jobs_now()
          FROM (SELECT u.id, u.token FROM unnest(ids, tokens) AS u(id, token) ORDER BY u.id) AS o
         WHERE j.id = o.id
           AND j.id = ANY (ids)
           AND j.token = o.token
        RETURNING j.id, o.token, j.unique_key, j.batch_id, j.name = ANY (fleeting) AS gone
    )
    SELECT array_agg(s.id), array_agg(s.token),
           array_agg(s.unique_key) FILTER (WHERE s.unique_key IS NOT NULL),
           array_agg(s.batch_id) FILTER (WHERE s.batch_id IS NOT NULL),
           array_agg(s.id) FILTER (WHERE s.gone)
      INTO ids, tokens, keys, batches, gone
      FROM settled s;
    PERFORM jobs__let_go(ids, keys, batches, array_fill(false, ARRAY[coalesce(cardinality(batches), 0)]), gone);
END
$$;

-- What each who said something of an attempt is told, in the order given; `s_…` is what was settled just now.
CREATE OR REPLACE FUNCTION jobs__answers(ids uuid[], tokens uuid[], outcomes text[], s_ids uuid[], s_tokens uuid[], s_outcomes text[], s_states text[])
RETURNS TABLE (n bigint, id uuid, accepted boolean, state text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    IF cardinality(s_ids) = cardinality(ids) THEN
        RETURN QUERY
            SELECT o.n, o.id, true, s.state
              FROM unnest(ids) WITH ORDINALITY AS o(id, n)
              JOIN unnest(s_ids, s_states) AS s(id, state) ON s.id = o.id
             ORDER BY o.n;
        RETURN;
    END IF;
    RETURN QUERY
        SELECT o.n, o.id,
               s.id IS NOT NULL
               OR coalesce(j.settled_token = o.token AND j.settled_as = o.outcome, false)
               OR f.job_id IS NOT NULL,
               coalesce(s.state, j.state)
          FROM unnest(ids, tokens, outcomes) WITH ORDINALITY AS o(id, token, outcome, n)
          LEFT JOIN unnest(s_ids, s_tokens, s_outcomes, s_states) AS s(id, token, outcome, state)
            ON (s.id, s.token, s.outcome) = (o.id, o.token, o.outcome)
          LEFT JOIN (SELECT r.id, r.state, r.settled_token, r.settled_as FROM jobs r WHERE r.id = ANY (ids)) AS j ON j.id = o.id
          LEFT JOIN (SELECT r.job_id, r.token FROM jobs_failures r WHERE r.job_id = ANY (ids)) AS f
            ON (f.job_id, f.token, 'failed') = (o.id, o.token, o.outcome)
         ORDER BY o.n;
END
$$;

-- Settle attempts, given as columns; `place` says in messages where one of them stands. Of several outcomes of
-- one attempt the first counts. The answers are in the order given.
CREATE OR REPLACE FUNCTION jobs__settle(ids uuid[], tokens uuid[], outcomes text[], details text[], place text)
RETURNS TABLE (n bigint, id uuid, accepted boolean, state text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    -- what each says of its attempt, in the order given
    said        record;
    attempt     record;
    kinds       text[] := '{}';
    permanents  boolean[] := '{}';
    waits       bigint[] := '{}';
    types       text[] := '{}';
    messages    text[] := '{}';
    stacks      text[] := '{}';
    -- what is to become of each that is held, in the order of ids
    v_places    bigint[];
    v_ids       uuid[];
    v_tokens    uuid[];
    v_outcomes  text[];
    v_states    text[];
    v_reasons   text[];
    v_moments   timestamptz[];
    -- what became of them
    s_ids       uuid[];
    s_tokens    uuid[];
    s_outcomes  text[];
    s_states    text[];
    keys        text[];
    batches     uuid[];
    failures    boolean[];
    gone        uuid[];
    waking      boolean;
    fleeting    text[] := ARRAY(SELECT d.name FROM jobs_definitions d WHERE d.keep_done_ms = 0);
BEGIN
    IF NOT EXISTS (SELECT FROM unnest(outcomes, details) AS o(outcome, detail) WHERE o.outcome IS DISTINCT FROM 'done' OR o.detail <> '{}') THEN
        SELECT d.ids, d.tokens INTO s_ids, s_tokens FROM jobs__settle_done(ids, tokens) AS d;
        RETURN QUERY SELECT a.* FROM jobs__answers(ids, tokens, outcomes, s_ids, s_tokens, outcomes, outcomes) AS a;
        RETURN;
    END IF;

    FOR attempt IN SELECT o.* FROM unnest(outcomes, details) WITH ORDINALITY AS o(outcome, detail, n) ORDER BY o.n LOOP
        said := jobs__read_detail(attempt.outcome, attempt.detail, format(place, attempt.n - 1));
        kinds := kinds || said.kind;
        permanents := permanents || said.permanent;
        waits := waits || said.wait_ms;
        types := types || said.type;
        messages := messages || said.message;
        stacks := stacks || said.stack;
    END LOOP;

    WITH held AS (
        SELECT o.n, j.id, j.token, j.name, j.attempts, j.max_attempts, j.cancel_at, o.outcome, o.kind, o.permanent, o.wait_ms
          FROM (SELECT DISTINCT ON (u.id, u.token) u.*
                  FROM unnest(ids, tokens, outcomes, kinds, permanents, waits) WITH ORDINALITY AS u(id, token, outcome, kind, permanent, wait_ms, n)
                 ORDER BY u.id, u.token, u.n) AS o
          JOIN jobs j ON j.id = o.id AND j.id = ANY (ids) AND j.token = o.token
         ORDER BY j.id
           FOR UPDATE OF j
    ), verdict AS (
        SELECT h.*,
               CASE WHEN h.outcome = 'done' THEN 'done'
                    WHEN h.outcome = 'cancelled' OR h.cancel_at IS NOT NULL THEN 'cancelled'
                    WHEN h.outcome = 'released' THEN 'pending'
                    WHEN h.outcome = 'snoozed' THEN 'scheduled'
                    WHEN h.permanent OR h.kind = 'invalid_args' OR h.attempts >= h.max_attempts THEN 'dead'
                    ELSE 'scheduled'
               END AS state
          FROM held h
    )
    SELECT array_agg(v.n), array_agg(v.id), array_agg(v.token), array_agg(v.outcome), array_agg(v.state),
           array_agg(CASE WHEN v.state <> 'dead' THEN NULL
                          WHEN v.kind IN ('invalid_args', 'unknown_name') THEN v.kind
                          WHEN v.permanent THEN 'permanent'
                          WHEN v.kind = 'lost' THEN 'lost'
                          ELSE 'exhausted'
                     END),
           array_agg(CASE v.state WHEN 'scheduled' THEN
                         jobs_now() + coalesce(v.wait_ms, jobs__backoff(jobs__definition(v.name), v.attempts)) * interval '1 millisecond'
                     END)
      INTO v_places, v_ids, v_tokens, v_outcomes, v_states, v_reasons, v_moments
      FROM verdict v;

    IF 'failed' = ANY (v_outcomes) THEN
        INSERT INTO jobs_failures (job_id, attempt, token, worker, kind, type, message, stack, started_at, failed_at)
        SELECT j.id, j.attempts, j.token, j.worker, o.kind, o.type, o.message, o.stack, j.started_at, jobs_now()
          FROM unnest(v_places, v_ids, v_outcomes) AS v(n, id, outcome)
          JOIN unnest(kinds, types, messages, stacks) WITH ORDINALITY AS o(kind, type, message, stack, n) ON o.n = v.n
          JOIN jobs j ON j.id = v.id AND j.id = ANY (v_ids)
         WHERE v.outcome = 'failed'
        ON CONFLICT DO NOTHING;
    END IF;

    WITH settled AS (
        UPDATE jobs j
           SET state = v.state,
               token = NULL,
               worker = NULL,
               lease_until = NULL,
               settled_token = v.token,
               settled_as = v.outcome,
               attempts = CASE WHEN v.outcome IN ('released', 'snoozed') THEN j.attempts - 1 ELSE j.attempts END,
               run_at = coalesce(v.run_at, j.run_at),
               finished_at = CASE WHEN v.state IN ('done', 'dead', 'cancelled') THEN jobs_now() END,
               dead_reason = v.reason
          FROM unnest(v_ids, v_tokens, v_outcomes, v_states, v_reasons, v_moments) AS v(id, token, outcome, state, reason, run_at)
         WHERE j.id = v.id
           AND j.id = ANY (v_ids)
           AND j.token = v.token
        RETURNING j.id, v.token, v.outcome, j.state, j.unique_key, j.batch_id,
                  j.finished_at IS NOT NULL AS ended,
                  j.state = 'done' AND j.name = ANY (fleeting) AS gone
    )
    SELECT array_agg(s.id), array_agg(s.token), array_agg(s.outcome), array_agg(s.state),
           array_agg(s.unique_key) FILTER (WHERE s.ended AND s.unique_key IS NOT NULL),
           array_agg(s.batch_id) FILTER (WHERE s.ended AND s.batch_id IS NOT NULL),
           array_agg(s.state <> 'done') FILTER (WHERE s.ended AND s.batch_id IS NOT NULL),
           array_agg(s.id) FILTER (WHERE s.gone),
           bool_or(s.state = 'pending')
      INTO s_ids, s_tokens, s_outcomes, s_states, keys, batches, failures, gone, waking
      FROM settled s;

    PERFORM jobs__let_go(s_ids, keys, batches, failures, gone);
    IF waking THEN
        PERFORM jobs__notify();
    END IF;

    RETURN QUERY SELECT a.* FROM jobs__answers(ids, tokens, outcomes, s_ids, s_tokens, s_outcomes, s_states) AS a;
END
$$;

CREATE OR REPLACE FUNCTION jobs_settle(id uuid, token uuid, outcome text, detail text DEFAULT NULL)
RETURNS TABLE (accepted boolean, state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF id IS NULL OR token IS NULL THEN
        PERFORM jobs__refuse('PJ003', 'id or token is missing', 'pass the id of the job, and the token it was claimed with');
    END IF;
    RETURN QUERY SELECT s.accepted, s.state FROM jobs__settle(ARRAY[id], ARRAY[token], ARRAY[outcome COLLATE "C"], ARRAY[detail COLLATE "C"], '') AS s;
END
$$;

-- Refuses the first of many outcomes that cannot be read, and says which it is.
CREATE OR REPLACE FUNCTION jobs__examine_outcomes(outcomes text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    element  record;
    key      text;
    value    text;
    place    text;
    given    integer;
BEGIN
    IF NOT jobs__is_json(outcomes) OR json_typeof(outcomes::json) <> 'array' THEN
        PERFORM jobs__refuse('PJ003', 'outcomes is not a JSON array', 'pass an array of {"id", "token", "outcome", "detail"}');
    END IF;

    FOR element IN SELECT e.value::text AS outcome, e.n - 1 AS n FROM json_array_elements(outcomes::json) WITH ORDINALITY AS e(value, n) LOOP
        place := format('outcomes[%s]', element.n);
        given := 0;
        FOR key, value IN SELECT m.key, m.value FROM jobs__members(element.outcome, place, ARRAY['id', 'token', 'outcome', 'detail']) AS m LOOP
            CASE key
                WHEN 'id', 'token' THEN given := given + num_nonnulls(jobs__uuid(value, place || '.' || key));
                WHEN 'outcome' THEN PERFORM jobs__text(value, place || '.outcome');
                WHEN 'detail' THEN PERFORM jobs__object(value, place || '.detail');
            END CASE;
        END LOOP;
        IF given < 2 THEN
            PERFORM jobs__refuse('PJ003', format('%s lacks its id or token', place), 'name each attempt as {"id", "token", "outcome"}');
        END IF;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION jobs_settle_many(outcomes text)
RETURNS TABLE (id uuid, accepted boolean, state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    shielded  record := jobs__shield(outcomes COLLATE "C");
    said      record;
BEGIN
    BEGIN
        SELECT array_agg(r.id) AS ids,
               array_agg(r.token) AS tokens,
               array_agg(r.outcome) AS outcomes,
               array_agg(replace(r.detail::text, shielded.mark, '\u')) AS details,
               bool_or(r.id IS NULL OR r.token IS NULL)
               OR sum(num_nonnulls(r.id, r.token, r.outcome, r.detail))
                  <> (SELECT count(*) FROM json_array_elements(shielded.body::json) AS e(value) CROSS JOIN LATERAL json_object_keys(e.value)) AS flawed
          INTO said
          FROM json_to_recordset(shielded.body::json) AS r(id uuid, token uuid, outcome text, detail json);
    EXCEPTION
        WHEN OTHERS THEN
            PERFORM jobs__examine_outcomes(outcomes COLLATE "C");
            RAISE;
    END;
    IF outcomes IS NULL THEN
        PERFORM jobs__refuse('PJ003', 'outcomes is missing', 'pass an array of {"id", "token", "outcome", "detail"}');
    ELSIF said.flawed THEN
        PERFORM jobs__examine_outcomes(outcomes COLLATE "C");
    ELSIF said.ids IS NULL THEN
        RETURN;
    END IF;

    RETURN QUERY
        SELECT s.id, s.accepted, s.state
          FROM jobs__settle(said.ids, said.tokens, said.outcomes, said.details, 'outcomes[%s].') AS s
         ORDER BY s.n;
END
$$;

-- The same for attempts that are all done, in columns. Nothing is answered for those that were held, which is usual;
-- what is to be said of the others has the place of each, from 1.
CREATE OR REPLACE FUNCTION jobs_settle_many(ids uuid[], tokens uuid[])
RETURNS TABLE (place bigint, accepted boolean, state text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    settled   record;
    outcomes  text[];
BEGIN
    IF ids IS NULL OR cardinality(ids) IS DISTINCT FROM cardinality(tokens) OR coalesce(array_position(ids, NULL), array_position(tokens, NULL)) IS NOT NULL THEN
        PERFORM jobs__refuse('PJ003', 'an id or token is missing', 'pass the ids of the jobs, and for each the token it was claimed with');
    END IF;
    settled := jobs__settle_done(ids, tokens);
    IF cardinality(settled.ids) = cardinality(ids) THEN
        RETURN;
    END IF;
    outcomes := array_fill('done'::text, ARRAY[cardinality(ids)]);
    RETURN QUERY
        SELECT a.n, a.accepted, a.state
          FROM jobs__answers(ids, tokens, outcomes, settled.ids, settled.tokens, outcomes, outcomes) AS a
         WHERE NOT a.accepted
            OR a.state <> 'done';
END
$$;
