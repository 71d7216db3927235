-- jobs_grant: lets a database role be a producer, worker, operator or viewer.
--
-- The routines run with the rights of their owner, so a role needs nothing but EXECUTE on those of its kind, and SELECT on
-- the views; it can write no table. Nobody else may call anything: PUBLIC's right is taken away. Who may grant is the
-- owner alone.
--
-- What an owner's routine calls is found by name and types, in the schema. Whoever could create functions there could make
-- one that fits a call better, and it would run with the owner's rights: so nothing is granted while anybody could.
-- Routines of the application that have such names are neither granted nor revoked.
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

-- Refuses a schema in which others than its owner and that of the routines may create.
CREATE OR REPLACE FUNCTION jobs__refuse_creators()
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    creator  text := (
        SELECT coalesce(quote_ident(r.rolname), 'PUBLIC')
          FROM pg_namespace n
         CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
          JOIN pg_proc g ON g.oid = 'jobs_grant(text, text)'::regprocedure
          LEFT JOIN pg_roles r ON r.oid = a.grantee
         WHERE n.nspname = current_schema()
           AND a.privilege_type = 'CREATE'
           AND a.grantee NOT IN (n.nspowner, g.proowner)
           AND r.rolsuper IS NOT TRUE
         ORDER BY a.grantee
         LIMIT 1);
BEGIN
    IF creator IS NOT NULL THEN
        PERFORM jobs__refuse('PJ003', format('%s may create in the schema %I, and so put routines of its own in the place of these', creator, current_schema()),
                             format('REVOKE CREATE ON SCHEMA %I FROM %s', current_schema(), creator));
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION jobs_grant(principal text, role text)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
AS $$
DECLARE
    each  text;
BEGIN
    IF role COLLATE "C" NOT IN ('producer', 'worker', 'operator', 'viewer') OR role IS NULL THEN
        PERFORM jobs__refuse('PJ003', format('there is no role %s', coalesce(to_json(role)::text, 'null')), 'the roles are producer, worker, operator and viewer');
    ELSIF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = principal COLLATE "C") OR principal IS NULL THEN
        PERFORM jobs__refuse('PJ003', format('there is no database role %s', coalesce(to_json(principal)::text, 'null')), 'create it first: CREATE ROLE …');
    END IF;
    PERFORM jobs__refuse_creators();

    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), principal);
    FOR each IN
        SELECT p.oid::regprocedure
          FROM jobs__routines() AS p
         WHERE p.proname = ANY (jobs__role_routines(role COLLATE "C"))
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', each, principal);
    END LOOP;
    FOREACH each IN ARRAY jobs__role_views(role COLLATE "C") LOOP
        EXECUTE format('GRANT SELECT ON %I.%I TO %I', current_schema(), each, principal);
    END LOOP;
END
$$;

-- The contract's routines in this schema: of its names, and of the owner of jobs_grant.
CREATE OR REPLACE FUNCTION jobs__routines()
RETURNS SETOF pg_proc
LANGUAGE sql STABLE
AS $$
    SELECT p.*
      FROM pg_proc p
      JOIN pg_proc g ON g.oid = 'jobs_grant(text, text)'::regprocedure AND g.proowner = p.proowner
     WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
       AND (p.proname LIKE 'jobs\_\_%'
            OR p.proname = 'jobs_grant'
            OR p.proname = ANY (jobs__role_routines('producer') || jobs__role_routines('worker') || jobs__role_routines('operator')))
$$;

DO $$
DECLARE
    each  record;
BEGIN
    FOR each IN
        SELECT p.oid::regprocedure AS routine
          FROM jobs__routines() AS p
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', each.routine);
    END LOOP;

    FOR each IN
        SELECT r.rolname AS principal, g.role
          FROM (SELECT a.grantee, CASE p.proname WHEN 'jobs_enqueue' THEN 'producer' WHEN 'jobs_claim' THEN 'worker' ELSE 'operator' END AS role
                  FROM jobs__routines() AS p
                 CROSS JOIN LATERAL aclexplode(p.proacl) AS a
                 WHERE p.proname IN ('jobs_enqueue', 'jobs_claim', 'jobs_retry')
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
