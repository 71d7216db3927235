-- jobs_claim: takes due work, in order, up to max_jobs.
--
-- Why no job is taken twice: rows are locked with SKIP LOCKED and tested again under the lock; whoever is second either
-- skips the row or finds it running. Why a repeat takes nothing more: calls with one token queue up behind a lock made
-- of it, and a token that holds rows is answered those.
--
-- Why the cost does not grow: each statement below reads from the head of an index that holds only what is claimable
-- next, or makes one probe for each lane (queue and name) or bucket it steps over. ORDER BY names the whole key of the
-- index that is meant, and rows found there are fetched again by their place alone, so that no statistics, however old,
-- can make another plan look better. A claim that finds nothing makes a handful of probes and writes nothing.
--
-- Why a place (ctid) is as good as an id: nothing that the calling statement could see is cleaned away before that ends,
-- so no other row can come to stand there; one that was changed meanwhile has moved, and is passed over; and
-- one that is locked moves for nobody but the locker. It saves three searches of the primary key a job.
--
-- Locks: rows of jobs are never waited for. Slots are inserted upwards by (bucket, slot), so that two claims that meet
-- in a bucket wait in one direction only.

-- Make due work claimable, the longest due first. Rows locked elsewhere are left for the next one who comes along.
CREATE OR REPLACE FUNCTION jobs__promote(most integer)
RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    promoted  integer;
BEGIN
    UPDATE jobs j
       SET state = 'pending'
     WHERE j.id = ANY (ARRAY(
               SELECT s.id
                 FROM jobs s
                WHERE s.state = 'scheduled'
                  AND s.run_at <= jobs_now()
                ORDER BY s.run_at, s.id
                LIMIT most
                  FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS promoted = ROW_COUNT;
    RETURN promoted;
END
$$;

-- Lock the first `most` of the candidates that are still pending and unlimited, and not locked elsewhere. One place after
-- another: for each row that somebody claimed a moment ago PostgreSQL looks through all places a scan was given once more,
-- which made a claim of a thousand beside another take a second.
-- (coalesce, because `bucket IS NULL` would let the planner read the line instead.)
CREATE OR REPLACE FUNCTION jobs__lock_unlimited(candidates tid[], most integer)
RETURNS tid[]
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN ARRAY(
        SELECT l.place
          FROM unnest(candidates) AS c(place)
         CROSS JOIN LATERAL (
               SELECT j.ctid AS place
                 FROM jobs j
                WHERE j.ctid = c.place
                  AND j.state = 'pending'
                  AND coalesce(j.bucket, '') = ''
                  FOR UPDATE SKIP LOCKED) AS l
         LIMIT most);
END
$$;

-- Remember for this session where the head of the line was, and until when to start there.
--
-- What has left the line stands in it until a vacuum comes by, which may be a minute, or for as long as somebody's
-- transaction stays open; whoever reads the line from its beginning steps over all of that. Where it was much (the engine
-- counts the pages), the session starts where the living ones began, for a tenth of a second or twenty times as long as the
-- reading took: so what is dead costs a claim a bounded part of its time. What comes in before that place meanwhile, a
-- retry or a more urgent job, waits that long. This is a stopwatch; no job's fate hangs on it.
CREATE OR REPLACE FUNCTION jobs__remember_head(head tid, hint jsonb, begun timestamptz)
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    ended  timestamptz := clock_timestamp();
    place  jsonb := (SELECT jsonb_build_object('priority', j.priority, 'run_at', j.run_at, 'id', j.id) FROM jobs j WHERE j.ctid = head);
    until  timestamptz := hint ->> 'until';
BEGIN
    IF until IS NULL OR until <= begun THEN
        until := ended + greatest(interval '100 milliseconds', 20 * (ended - begun));
    END IF;
    -- A line in which nothing lives has no new place; the last one still holds.
    PERFORM set_config('pyjobs.head', (coalesce(place, hint) || jsonb_build_object('until', until))::text, false);
END
$$;

-- The wanted lanes in which unlimited work waits: one probe for each lane there is.
CREATE OR REPLACE FUNCTION jobs__lanes(queues text[], names text[], paused text[])
RETURNS TABLE (queue text, name text)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        WITH RECURSIVE lane AS (
            (SELECT j.queue, j.name
               FROM jobs j
              WHERE j.state = 'pending'
                AND j.bucket IS NULL
              ORDER BY j.queue, j.name, j.priority, j.run_at, j.id
              LIMIT 1)
            UNION ALL
            SELECT n.queue, n.name
              FROM lane l
             CROSS JOIN LATERAL (
                   SELECT j.queue, j.name
                     FROM jobs j
                    WHERE j.state = 'pending'
                      AND j.bucket IS NULL
                      AND (j.queue, j.name) > (l.queue, l.name)
                    ORDER BY j.queue, j.name, j.priority, j.run_at, j.id
                    LIMIT 1) AS n
        )
        SELECT l.queue::text, l.name::text
          FROM lane l
         WHERE (queues IS NULL OR l.queue = ANY (queues))
           AND (names IS NULL OR l.name = ANY (names))
           AND l.queue <> ALL (paused);
END
$$;

-- Unlimited work where the heads of all lanes that are wanted are locked by somebody who does not let go: lane after lane,
-- stepping over what is locked. This reads what is locked, and no lane waits for another.
CREATE OR REPLACE FUNCTION jobs__pick_past_locked(queues text[], names text[], paused text[], most integer)
RETURNS tid[]
LANGUAGE plpgsql
AS $$
DECLARE
    lane    record;
    picked  tid[] := '{}';
BEGIN
    FOR lane IN
        SELECT l.queue, l.name FROM jobs__lanes(queues, names, paused) AS l
    LOOP
        picked := picked || ARRAY(
            SELECT j.ctid
              FROM jobs j
             WHERE j.state = 'pending'
               AND j.bucket IS NULL
               AND (j.queue, j.name) >= (lane.queue, lane.name)
               AND (j.queue, j.name) <= (lane.queue, lane.name)
             ORDER BY j.queue, j.name, j.priority, j.run_at, j.id
             LIMIT most - cardinality(picked)
               FOR UPDATE SKIP LOCKED);
        EXIT WHEN cardinality(picked) >= most;
    END LOOP;
    RETURN picked;
END
$$;

-- Unlimited work, locked, in order. The head of the line serves nearly every claim; a longer look is taken where others
-- hold the first ones. Where that is full of work that is not for this one, the lanes are looked at: of each that is, its head.
CREATE OR REPLACE FUNCTION jobs__pick_unlimited(queues text[], names text[], paused text[], most integer)
RETURNS tid[]
LANGUAGE plpgsql
AS $$
DECLARE
    begun         timestamptz := clock_timestamp();
    hint          jsonb := nullif(current_setting('pyjobs.head', true), '');
    fresh         boolean := coalesce((hint ->> 'until')::timestamptz > begun, false);
    low_priority  smallint := CASE WHEN fresh THEN (hint ->> 'priority')::smallint ELSE -32768 END;
    low_run_at    timestamptz := CASE WHEN fresh THEN (hint ->> 'run_at')::timestamptz ELSE '-infinity' END;
    low_id        uuid := CASE WHEN fresh THEN (hint ->> 'id')::uuid ELSE '00000000-0000-0000-0000-000000000000' END;
    pages_before  bigint := coalesce(pg_stat_get_xact_blocks_fetched('jobs_line'::regclass), 0);
    depth         integer;
    seen          integer;
    candidates    tid[];
    picked        tid[] := '{}';
BEGIN
    FOREACH depth IN ARRAY ARRAY[greatest(20, most), greatest(100, 4 * most)] LOOP
        SELECT count(*), coalesce(array_agg(l.place) FILTER (WHERE (queues IS NULL OR l.queue = ANY (queues))
                                                            AND (names IS NULL OR l.name = ANY (names))
                                                            AND l.queue <> ALL (paused)), '{}')
          INTO seen, candidates
          FROM (SELECT j.ctid AS place, j.queue, j.name
                  FROM jobs j
                 WHERE j.state = 'pending'
                   AND j.bucket IS NULL
                   AND (j.priority, j.run_at, j.id) >= (low_priority, low_run_at, low_id)
                 ORDER BY j.priority, j.run_at, j.id
                 LIMIT depth) AS l;
        IF pg_stat_get_xact_blocks_fetched('jobs_line'::regclass) > pages_before + 50 + depth / 20 THEN
            PERFORM jobs__remember_head(candidates[1], hint, begun);
        END IF;
        IF picked <> '{}' THEN
            candidates := ARRAY(
                SELECT c.place
                  FROM unnest(candidates) WITH ORDINALITY AS c(place, number)
                 WHERE NOT EXISTS (SELECT FROM unnest(picked) AS p(place) WHERE p.place = c.place)
                 ORDER BY c.number);
        END IF;
        picked := picked || jobs__lock_unlimited(candidates, most - cardinality(picked));
        IF cardinality(picked) = most OR seen < depth THEN
            RETURN picked;
        END IF;
    END LOOP;

    candidates := ARRAY(
        SELECT h.place
          FROM jobs__lanes(queues, names, paused) AS l
         CROSS JOIN LATERAL (
               SELECT j.ctid AS place, j.priority, j.run_at, j.id
                 FROM jobs j
                WHERE j.state = 'pending'
                  AND j.bucket IS NULL
                  AND (j.queue, j.name) >= (l.queue, l.name)
                  AND (j.queue, j.name) <= (l.queue, l.name)
                ORDER BY j.queue, j.name, j.priority, j.run_at, j.id
                LIMIT 4 * most) AS h
         ORDER BY h.priority, h.run_at, h.id
         LIMIT 4 * most);
    candidates := jobs__lock_unlimited(candidates, most);
    IF candidates = '{}' THEN
        RETURN jobs__in_order(jobs__pick_past_locked(queues, names, paused, most), most);
    END IF;
    RETURN candidates;
END
$$;

-- Limited work of one lane and priority, locked: a job of each bucket that has room, from behind a place on the ring of
-- buckets round to it again, and then more from those that have room for more. A bucket without room costs one probe, however
-- many jobs wait in it; where a quarter of what is wanted was found and then fifty in a row have no room, the walk is cut short.
-- `met` are the buckets of what was picked before.
CREATE OR REPLACE FUNCTION jobs__walk_ring(lane_queue text, lane_name text, level smallint, origin text, met text[], most integer)
RETURNS TABLE (place tid, bucket text, room bigint, cut_short boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    origin_ring  integer := hashtext(origin);
    usual        jobs_groups := (SELECT g FROM jobs_definitions d JOIN jobs_groups g ON g.name = d.concurrency_group WHERE d.name = lane_name);
BEGIN
    RETURN QUERY
        WITH RECURSIVE walk AS (
            SELECT 0 AS turn, origin_ring AS ring, origin COLLATE "C" AS bucket, NULL::tid AS place, 0::bigint AS room, 0 AS found, 0 AS full_in_a_row
            UNION ALL
            SELECT n.turn, n.ring, n.bucket, n.place, r.room, w.found + (r.room > 0)::integer, CASE WHEN r.room > 0 THEN 0 ELSE w.full_in_a_row + 1 END
              FROM walk w
             CROSS JOIN LATERAL (
                   (SELECT w.turn, f.ring, f.bucket, f.place
                      FROM (SELECT j.ring, j.bucket, j.ctid AS place
                              FROM jobs j
                             WHERE j.state = 'pending'
                               AND j.bucket IS NOT NULL
                               AND j.queue = lane_queue
                               AND j.name = lane_name
                               AND j.priority = level
                               AND (j.ring, j.bucket) > (w.ring, w.bucket)
                             ORDER BY j.queue, j.name, j.priority, j.ring, j.bucket, j.run_at, j.id
                             LIMIT 1) AS f
                     WHERE w.turn = 0 OR (f.ring, f.bucket) <= (origin_ring, origin))
                   UNION ALL
                   (SELECT 1, j.ring, j.bucket, j.ctid
                      FROM jobs j
                     WHERE j.state = 'pending'
                       AND j.bucket IS NOT NULL
                       AND j.queue = lane_queue
                       AND j.name = lane_name
                       AND j.priority = level
                       AND (j.ring, j.bucket) <= (origin_ring, origin)
                       AND w.turn = 0
                     ORDER BY j.queue, j.name, j.priority, j.ring, j.bucket, j.run_at, j.id
                     LIMIT 1)
                   LIMIT 1) AS n
             CROSS JOIN LATERAL (
                   SELECT CASE split_part(n.bucket, ':', 1) WHEN usual.name THEN usual.slots
                                                            ELSE (SELECT g.slots FROM jobs_groups g WHERE g.name = split_part(n.bucket, ':', 1)) END
                          - (SELECT count(*) FROM jobs_slots s WHERE s.bucket = n.bucket)
                          - coalesce(cardinality(array_positions(met, n.bucket)), 0) AS room
                   OFFSET 0) AS r  -- or it would be counted anew wherever it is named
             WHERE w.found < most
               AND (w.full_in_a_row < 50 OR 4 * w.found < most)
        ), open AS MATERIALIZED (
            SELECT w.ring, w.bucket, w.place, w.room
              FROM walk w
             WHERE w.room > 0
        )
        SELECT h.place, o.bucket, o.room, EXISTS (SELECT FROM walk w WHERE w.full_in_a_row = 50 AND 4 * w.found >= most)
          FROM open o
         CROSS JOIN LATERAL (
               (SELECT l.place
                  FROM (SELECT j.ctid AS place  -- the first of the bucket, unless somebody has it
                          FROM jobs j
                         WHERE j.ctid = o.place
                           AND j.state = 'pending'
                           AND j.bucket = o.bucket
                           FOR UPDATE SKIP LOCKED) AS l)
               UNION ALL
               (SELECT l.place
                  FROM (SELECT j.ctid AS place
                          FROM jobs j
                         WHERE j.state = 'pending'
                           AND j.bucket = o.bucket
                           AND j.queue = lane_queue
                           AND j.name = lane_name
                           AND j.priority = level
                           AND j.ring = o.ring
                           AND j.ctid <> o.place
                         ORDER BY j.queue, j.name, j.priority, j.ring, j.bucket, j.run_at, j.id
                           FOR UPDATE SKIP LOCKED) AS l)
               LIMIT least(o.room, most - (SELECT count(*) FROM open) + 1)) AS h;  -- each of the other buckets gives one at least
END
$$;

-- Limited work, locked: by priority, and within one priority a job of each bucket before a second one of any. A session goes
-- on behind the bucket it took last in that lane, so that each has its turn; where its last claim was not there, from anywhere.
-- Where a walk was cut short, more of that priority may have room: nothing less urgent than `bound` may go before it.
CREATE OR REPLACE FUNCTION jobs__pick_limited(queues text[], names text[], paused text[], most integer, OUT picked tid[], OUT bound smallint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    turns    jsonb := nullif(current_setting('pyjobs.turn', true), '');
    taken    jsonb := '{}';  -- the bucket taken last of each lane and priority
    spot     text;
    places   tid[] := '{}';
    buckets  text[] := '{}';
    rooms    bigint[] := '{}';
    met      text[];
    lane     record;
    level    smallint;
    more     record;
BEGIN
    FOR lane IN
        WITH RECURSIVE lane AS (
            (SELECT j.queue, j.name, j.priority
               FROM jobs j
              WHERE j.state = 'pending'
                AND j.bucket IS NOT NULL
              ORDER BY j.queue, j.name, j.priority, j.ring, j.bucket, j.run_at, j.id
              LIMIT 1)
            UNION ALL
            SELECT n.queue, n.name, n.priority
              FROM lane l
             CROSS JOIN LATERAL (
                   SELECT j.queue, j.name, j.priority
                     FROM jobs j
                    WHERE j.state = 'pending'
                      AND j.bucket IS NOT NULL
                      AND (j.queue, j.name) > (l.queue, l.name)
                    ORDER BY j.queue, j.name, j.priority, j.ring, j.bucket, j.run_at, j.id
                    LIMIT 1) AS n
        )
        SELECT l.queue, l.name, l.priority
          FROM lane l
         WHERE (queues IS NULL OR l.queue = ANY (queues))
           AND (names IS NULL OR l.name = ANY (names))
           AND l.queue <> ALL (paused)
    LOOP
        met := '{}';
        level := lane.priority;
        LOOP
            spot := jsonb_build_array(lane.queue, lane.name, level);
            SELECT array_agg(w.place) AS places, array_agg(w.bucket) AS buckets, array_agg(w.room) AS rooms, bool_or(w.cut_short) AS cut_short INTO more
              FROM jobs__walk_ring(lane.queue, lane.name, level,
                                   coalesce(turns ->> spot, random()::text),
                                   met, most - cardinality(met)) AS w;
            places := places || more.places;
            buckets := buckets || more.buckets;
            rooms := rooms || more.rooms;
            met := met || more.buckets;
            IF more.buckets IS NOT NULL THEN
                taken := taken || jsonb_build_object(spot, more.buckets[cardinality(more.buckets)]);
            END IF;
            IF more.cut_short THEN
                bound := least(bound, level);
                EXIT;
            END IF;
            EXIT WHEN cardinality(met) >= most;

            SELECT j.priority INTO level
              FROM jobs j
             WHERE j.state = 'pending'
               AND j.bucket IS NOT NULL
               AND j.queue = lane.queue
               AND j.name = lane.name
               AND j.priority > level
             ORDER BY j.queue, j.name, j.priority, j.ring, j.bucket, j.run_at, j.id
             LIMIT 1;
            EXIT WHEN NOT FOUND;
        END LOOP;
    END LOOP;

    picked := places;
    IF places = '{}' THEN
        RETURN;
    END IF;
    PERFORM set_config('pyjobs.turn', taken::text, false);
    IF cardinality(places) = (SELECT count(DISTINCT b.bucket) FROM unnest(buckets) AS b(bucket)) THEN
        picked := jobs__in_order(places, most);
        RETURN;
    END IF;
    picked := ARRAY(
        SELECT r.place
          FROM (SELECT p.place, j.priority, j.run_at, j.id,
                       max(p.room) OVER (PARTITION BY p.bucket) AS room,
                       row_number() OVER (PARTITION BY p.bucket ORDER BY j.priority, j.run_at, j.id) AS rank
                  FROM unnest(places, buckets, rooms) AS p(place, bucket, room)
                  JOIN jobs j ON j.ctid = p.place AND j.ctid = ANY (places)) AS r
         WHERE r.rank <= r.room
         ORDER BY r.priority, r.rank, r.run_at, r.id
         LIMIT most);
END
$$;

-- Of locked rows those that stand in another bucket than their definition says, having been enqueued by one who did not
-- see it yet: they are given the right one, and answered.
CREATE OR REPLACE FUNCTION jobs__put_right(picked tid[])
RETURNS tid[]
LANGUAGE plpgsql
AS $$
DECLARE
    misplaced  tid[] := ARRAY(
        SELECT j.ctid
          FROM jobs j
          JOIN jobs_definitions d ON d.name = j.name
         WHERE j.ctid = ANY (picked)
           AND CASE WHEN d.concurrency_group IS NULL THEN j.bucket IS NOT NULL
                    ELSE j.bucket IS DISTINCT FROM jobs__bucket(d.concurrency_group, d.concurrency_key, j.args) END);
BEGIN
    IF misplaced <> '{}' THEN
        UPDATE jobs j
           SET bucket = (SELECT jobs__bucket(d.concurrency_group, d.concurrency_key, j.args) FROM jobs_definitions d WHERE d.name = j.name)
         WHERE j.ctid = ANY (misplaced);
    END IF;
    RETURN misplaced;
END
$$;

-- Those of the given jobs that are as urgent as that, or more.
CREATE OR REPLACE FUNCTION jobs__as_urgent_as(bound smallint, places tid[])
RETURNS tid[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT p.place
          FROM unnest(places) WITH ORDINALITY AS p(place, number)
          JOIN jobs j ON j.ctid = p.place
         WHERE j.priority <= bound
         ORDER BY p.number)
$$;

-- The given jobs in the order of claiming.
CREATE OR REPLACE FUNCTION jobs__in_order(places tid[], most integer)
RETURNS tid[]
LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT j.ctid
          FROM jobs j
         WHERE j.ctid = ANY (places)
         ORDER BY j.priority, j.run_at, j.id
         LIMIT most)
$$;

-- Of limited jobs those that got a slot for this token.
CREATE OR REPLACE FUNCTION jobs__take_slots(places tid[], token uuid)
RETURNS tid[]
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    served  tid[] := '{}';
    job     record;
    spent   text;     -- the bucket that has no more
    last    text;     -- the bucket a slot was taken in last, and its number
    slot    integer;
BEGIN
    -- These jobs are pending: a slot that stands in the name of one is not valid.
    DELETE FROM jobs_slots s WHERE s.job_id = ANY (ARRAY(SELECT j.id FROM jobs j WHERE j.ctid = ANY (places)));

    -- Where each bucket lets one through, which is usual, there is no number to look for: who finds it taken has no place.
    IF NOT EXISTS (
        SELECT
          FROM (SELECT DISTINCT split_part(j.bucket, ':', 1) AS name FROM jobs j WHERE j.ctid = ANY (places)) AS b
          JOIN jobs_groups g ON g.name = b.name
         WHERE g.slots > 1)
    THEN
        WITH first AS MATERIALIZED (
            SELECT DISTINCT ON (j.bucket) j.bucket, j.id, j.ctid AS place
              FROM jobs j
             WHERE j.ctid = ANY (places)
             ORDER BY j.bucket, j.priority, j.run_at, j.id
        ), taken AS (
            INSERT INTO jobs_slots (bucket, slot, job_id, token, taken_at)
            SELECT f.bucket, 0, f.id, jobs__take_slots.token, jobs_now()
              FROM first f
             WHERE NOT EXISTS (SELECT FROM jobs_slots s WHERE s.bucket = f.bucket)  -- the limit may have been higher
             ORDER BY f.bucket
            ON CONFLICT DO NOTHING
            RETURNING job_id
        )
        SELECT coalesce(array_agg(f.place), '{}') INTO served FROM taken t JOIN first f ON f.id = t.job_id;
        RETURN served;
    END IF;

    FOR job IN
        SELECT j.ctid AS place, j.id, j.bucket FROM jobs j WHERE j.ctid = ANY (places) ORDER BY j.bucket, j.priority, j.run_at, j.id
    LOOP
        CONTINUE WHEN job.bucket = spent;
        slot := jobs__take_slot(job.bucket, job.id, jobs__take_slots.token, CASE WHEN job.bucket = last THEN slot ELSE -1 END);
        IF slot IS NULL THEN
            spent := job.bucket;
        ELSE
            served := served || job.place;
            last := job.bucket;
        END IF;
    END LOOP;
    RETURN served;
END
$$;

CREATE OR REPLACE FUNCTION jobs__read_claim(options text, OUT queues text[], OUT names text[], OUT max_jobs integer, OUT lease interval)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
    key       text;
    value     text;
    lease_ms  bigint := 300000;
BEGIN
    max_jobs := 1;
    FOR key, value IN
        SELECT m.key, m.value
          FROM jobs__members(options, 'options', ARRAY['queues', 'names', 'max_jobs', 'lease_ms']) AS m
         WHERE m.value IS NOT NULL
    LOOP
        CASE key
            WHEN 'queues' THEN queues := jobs__texts(value, key);
            WHEN 'names' THEN names := jobs__texts(value, key);
            WHEN 'max_jobs' THEN max_jobs := jobs__integer(value, key, 1, 1000);
            WHEN 'lease_ms' THEN lease_ms := jobs__duration(value, key);
        END CASE;
    END LOOP;
    lease := lease_ms * interval '1 millisecond';
END
$$;

-- (The parameters that are not its arguments are the columns it answers.)
CREATE OR REPLACE FUNCTION jobs_claim(
    worker text,
    OUT id uuid, OUT name text, OUT queue text, OUT args text, OUT attempt integer, OUT max_attempts integer, OUT timeout_ms bigint,
    OUT priority smallint, OUT tenant text, OUT batch_id uuid, OUT meta text, OUT unique_key text, OUT enqueued_at timestamptz, OUT run_at timestamptz,
    INOUT token uuid,
    OUT lease_until timestamptz,
    options text DEFAULT NULL)
RETURNS SETOF record
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    wanted     record := jobs__read_claim(options COLLATE "C");
    paused     text[] COLLATE "C" := ARRAY(SELECT p.queue FROM jobs_paused p);
    unlimited  tid[];
    limited    tid[];
    bound      smallint;
    misplaced  tid[];
    picked     tid[];
BEGIN
    PERFORM jobs__fit(coalesce(worker, ''), 'worker');
    IF token IS NULL THEN
        PERFORM jobs__refuse('PJ003', 'token is missing', 'make a new UUID for each claim, and pass the same one to repeat it');
    END IF;

    PERFORM pg_advisory_xact_lock(hashtextextended(token::text, 0));
    IF NOT EXISTS (SELECT FROM jobs j WHERE j.token = jobs_claim.token AND j.state = 'running') THEN
        PERFORM jobs__promote(greatest(100, 2 * wanted.max_jobs));
        unlimited := jobs__pick_unlimited(wanted.queues, wanted.names, paused, wanted.max_jobs);
        SELECT l.picked, l.bound INTO limited, bound FROM jobs__pick_limited(wanted.queues, wanted.names, paused, wanted.max_jobs) AS l;
        IF bound IS NOT NULL THEN
            unlimited := jobs__as_urgent_as(bound, unlimited);
            limited := jobs__as_urgent_as(bound, limited);
        END IF;
        IF unlimited = '{}' AND limited = '{}' THEN
            RETURN;
        END IF;

        IF limited <> '{}' OR EXISTS (SELECT FROM jobs_definitions d WHERE d.concurrency_group IS NOT NULL) THEN
            misplaced := jobs__put_right(unlimited || limited);
            IF misplaced <> '{}' THEN
                unlimited := jobs__in_order(ARRAY(SELECT unnest(unlimited) EXCEPT SELECT unnest(misplaced)), wanted.max_jobs);
                limited := ARRAY(SELECT unnest(limited) EXCEPT SELECT unnest(misplaced));
            END IF;
        END IF;
        IF limited = '{}' THEN
            picked := unlimited;
        ELSE
            IF unlimited <> '{}' THEN
                picked := jobs__in_order(unlimited || limited, wanted.max_jobs);
                limited := ARRAY(SELECT unnest(picked) INTERSECT SELECT unnest(limited));
            END IF;
            limited := jobs__take_slots(limited, token);
            picked := jobs__in_order(unlimited || limited, wanted.max_jobs);
        END IF;

        -- Place by place, and so in the order of `picked`: with no table to be read but by its places, no plan can do otherwise.
        -- Sorting these rows once more would cost a twelfth of the claim.
        RETURN QUERY
            UPDATE jobs j
               SET state = 'running',
                   token = jobs_claim.token,
                   worker = jobs_claim.worker,
                   lease_until = jobs_now() + wanted.lease,
                   attempts = j.attempts + 1,
                   started_at = jobs_now()
              FROM unnest(picked) AS p(place)
             WHERE j.ctid = p.place
            RETURNING j.id, j.name::text, j.queue::text, j.args, j.attempts, j.max_attempts::integer, j.timeout_ms::bigint, j.priority,
                      j.tenant::text, j.batch_id, j.meta, j.unique_key, j.enqueued_at, j.run_at, j.token, j.lease_until;
        RETURN;
    END IF;

    RETURN QUERY
        SELECT j.id, j.name::text, j.queue::text, j.args, j.attempts, j.max_attempts::integer, j.timeout_ms::bigint, j.priority, j.tenant::text,
               j.batch_id, j.meta, j.unique_key, j.enqueued_at, j.run_at, j.token, j.lease_until
          FROM jobs j
         WHERE j.token = jobs_claim.token
           AND j.state = 'running'
         ORDER BY j.priority, j.run_at, j.id;
END
$$;
