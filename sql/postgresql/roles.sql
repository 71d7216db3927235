-- jobs_grant: lets a database role be a producer, worker, operator or viewer.
--
-- The routines run with the rights of their owner, so a role needs nothing but EXECUTE on those of its kind, and SELECT on
-- the views; it can write no table. Nobody else may call anything: PUBLIC's right is taken away. Who may grant is the
-- owner alone.
--
-- What was granted is remembered by the grants themselves: whoever may call jobs_enqueue is a producer, and so on.
-- This file ends by granting to each of them again, so that what a new version adds is theirs as well.

-- What a role may call.
CREATE OR REPLACE FUNCTION jobs__role_routines(role text)
RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
    SELECT ARRAY['jobs_contract', 'jobs_now'] || CASE role
        WHEN 'producer' THEN ARRAY['jobs_enqueue', 'jobs_enqueue_many', 'jobs_open_batch', 'jobs_seal_batch']
        WHEN 'worker' THEN ARRAY['jobs_claim', 'jobs_heartbeat', 'jobs_settle', 'jobs_settle_many', 'jobs_take_slot', 'jobs_free_slot',
                                 'jobs_advance_batch', 'jobs_put_schedule', 'jobs_prune_schedules', 'jobs_tick_schedule', 'jobs_sweep',
                                 'jobs_define', 'jobs_forget']
        WHEN 'operator' THEN ARRAY['jobs_retry', 'jobs_cancel', 'jobs_discard', 'jobs_pause_queue', 'jobs_resume_queue', 'jobs_set', 'jobs_advance_batch']
        WHEN 'viewer' THEN ARRAY[]::text[]
    END
$$;

-- What a role may read.
CREATE OR REPLACE FUNCTION jobs__role_views(role text)
RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE
        WHEN role = 'producer' THEN ARRAY['jobs_defined']
        ELSE ARRAY['jobs_list', 'jobs_errors', 'jobs_status', 'jobs_backlog', 'jobs_active', 'jobs_dead', 'jobs_timings', 'jobs_limits',
                   'jobs_batch_status', 'jobs_schedule_status', 'jobs_worker_status', 'jobs_orphans', 'jobs_defined', 'jobs_paused_queues']
    END
$$;

CREATE OR REPLACE FUNCTION jobs_grant(principal text, role text)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    each  text;
BEGIN
    IF role NOT IN ('producer', 'worker', 'operator', 'viewer') OR role IS NULL THEN
        PERFORM jobs__refuse('PJ003', format('there is no role %s', coalesce(to_json(role)::text, 'null')), 'the roles are producer, worker, operator and viewer');
    ELSIF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = principal) OR principal IS NULL THEN
        PERFORM jobs__refuse('PJ003', format('there is no database role %s', coalesce(to_json(principal)::text, 'null')), 'create it first: CREATE ROLE …');
    END IF;

    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), principal);
    FOR each IN
        SELECT p.oid::regprocedure
          FROM pg_proc p
         WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
           AND p.proname = ANY (jobs__role_routines(role))
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', each, principal);
    END LOOP;
    FOREACH each IN ARRAY jobs__role_views(role) LOOP
        EXECUTE format('GRANT SELECT ON %I.%I TO %I', current_schema(), each, principal);
    END LOOP;
END
$$;

DO $$
DECLARE
    each  record;
BEGIN
    FOR each IN
        SELECT p.oid::regprocedure AS routine
          FROM pg_proc p
         WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
           AND p.proname LIKE 'jobs\_%'
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', each.routine);
    END LOOP;

    FOR each IN
        SELECT r.rolname AS principal, g.role
          FROM (SELECT a.grantee, CASE p.proname WHEN 'jobs_enqueue' THEN 'producer' WHEN 'jobs_claim' THEN 'worker' ELSE 'operator' END AS role
                  FROM pg_proc p
                 CROSS JOIN LATERAL aclexplode(p.proacl) AS a
                 WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
                   AND p.proname IN ('jobs_enqueue', 'jobs_claim', 'jobs_retry')
                   AND a.grantee <> p.proowner
                UNION
                SELECT a.grantee, 'viewer'
                  FROM pg_class c
                 CROSS JOIN LATERAL aclexplode(c.relacl) AS a
                 WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
                   AND c.relname = 'jobs_status'
                   AND a.grantee <> c.relowner) AS g
          JOIN pg_roles r ON r.oid = g.grantee
    LOOP
        PERFORM jobs_grant(each.principal, each.role);
    END LOOP;
END
$$;
