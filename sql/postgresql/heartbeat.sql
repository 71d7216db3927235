-- jobs_heartbeat: extends the leases of the claims a worker names, records the worker, and answers what needs attention:
-- `cancel` where somebody asked for it, `lost` where the claim is not the worker's any more.
--
-- Only what is named is extended: a claim whose reply never arrived expires. Rows are locked in the order of their ids, and
-- those locked elsewhere are passed over: one that somebody does not let go must not cost the others their leases, and
-- its own is looked after by the lock, as a rescue passes it over too. No index holds lease_until, so that a heartbeat
-- changes none.

-- The worker as it speaks of itself. What no text can hold is taken out, so that views can look into it.
CREATE OR REPLACE FUNCTION jobs__record_worker(worker text, info text, lease interval)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    shielded  record := jobs__shield(jobs__object(info, 'info'));
BEGIN
    INSERT INTO jobs_workers AS w (id, info, started_at, seen_at, live_until)
    VALUES (worker, coalesce(replace(shielded.body, shielded.mark, '\ufffd'), '{}'), jobs_now(), jobs_now(), jobs_now() + lease)
    ON CONFLICT (id) DO UPDATE
       SET info = CASE WHEN jobs__record_worker.info IS NULL THEN w.info ELSE excluded.info END,
           seen_at = excluded.seen_at,
           live_until = excluded.live_until;
END
$$;

-- The claims a document names, in the order of their ids.
CREATE OR REPLACE FUNCTION jobs__read_held(held text, OUT ids uuid[], OUT tokens uuid[])
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    element  record;
    key      text;
    value    text;
    place    text;
    id       uuid;
    token    uuid;
BEGIN
    IF NOT jobs__is_json(held) OR json_typeof(held::json) <> 'array' THEN
        PERFORM jobs__refuse('PJ003', 'held is not a JSON array', 'pass an array of {"id", "token"}');
    END IF;

    ids := '{}';
    tokens := '{}';
    FOR element IN SELECT e.value::text AS claim, e.n - 1 AS n FROM json_array_elements(held::json) WITH ORDINALITY AS e(value, n) LOOP
        place := format('held[%s]', element.n);
        id := NULL;
        token := NULL;
        FOR key, value IN SELECT m.key, m.value FROM jobs__members(element.claim, place, ARRAY['id', 'token']) AS m LOOP
            CASE key
                WHEN 'id' THEN id := jobs__uuid(value, place || '.id');
                WHEN 'token' THEN token := jobs__uuid(value, place || '.token');
            END CASE;
        END LOOP;
        IF id IS NULL OR token IS NULL THEN
            PERFORM jobs__refuse('PJ003', format('%s lacks its id or token', place), 'name each claim as {"id", "token"}');
        END IF;
        ids := ids || id;
        tokens := tokens || token;
    END LOOP;

    SELECT coalesce(array_agg(h.id ORDER BY h.id), '{}'), coalesce(array_agg(h.token ORDER BY h.id), '{}')
      INTO ids, tokens
      FROM (SELECT DISTINCT u.id, u.token FROM unnest(ids, tokens) AS u(id, token)) AS h;
END
$$;

CREATE OR REPLACE FUNCTION jobs_heartbeat(worker text, held text DEFAULT '[]', options text DEFAULT NULL)
RETURNS TABLE (id uuid, signal text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    claims   record := jobs__read_held(coalesce(held, '[]') COLLATE "C");
    lease    interval := interval '5 minutes';
    info     text COLLATE "C";
    leaving  boolean;
    key      text COLLATE "C";
    value    text COLLATE "C";
BEGIN
    PERFORM jobs__fit(coalesce(worker, ''), 'worker');
    FOR key, value IN
        SELECT m.key, m.value
          FROM jobs__members(options COLLATE "C", 'options', ARRAY['lease_ms', 'info', 'leaving']) AS m
         WHERE m.value IS NOT NULL
    LOOP
        CASE key
            WHEN 'lease_ms' THEN lease := jobs__duration(value, key) * interval '1 millisecond';
            WHEN 'info' THEN info := jobs__object(value, key);
            WHEN 'leaving' THEN leaving := jobs__boolean(value, key);
        END CASE;
    END LOOP;

    UPDATE jobs j
       SET lease_until = jobs_now() + lease
     WHERE j.id = ANY (ARRAY(
               SELECT h.id
                 FROM unnest(claims.ids, claims.tokens) AS c(id, token)
                 JOIN jobs h ON h.id = c.id AND h.id = ANY (claims.ids) AND h.token = c.token
                ORDER BY h.id
                  FOR NO KEY UPDATE OF h SKIP LOCKED));
    RETURN QUERY
        SELECT c.id, CASE WHEN h.id IS NULL THEN 'lost' ELSE 'cancel' END
          FROM unnest(claims.ids, claims.tokens) AS c(id, token)
          LEFT JOIN (SELECT j.id, j.token, j.cancel_at FROM jobs j WHERE j.id = ANY (claims.ids)) AS h ON h.id = c.id AND h.token = c.token
         WHERE h.id IS NULL
            OR h.cancel_at IS NOT NULL;

    IF leaving THEN
        DELETE FROM jobs_workers w WHERE w.id = worker COLLATE "C";
    ELSE
        PERFORM jobs__record_worker(worker COLLATE "C", info, lease);
    END IF;
END
$$;
