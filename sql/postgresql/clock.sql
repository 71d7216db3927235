-- The ground the routines stand on: the clock, ids, refusals, and how JSON is read.
--
-- jobs_now() is the only place that reads the clock. It is STABLE, so that an index can be searched by it, and one
-- value for the whole statement a client sent, so that everything a routine does happens at one moment.
--
-- JSON is read as `json`, never `jsonb`: a value is the very characters that were sent. `json` has one trap: it accepts
-- the escape \u0000 and lone surrogates, which no text can hold, and then every operator that looks into
-- such a document fails, wherever in it they stand. jobs__shield takes them out of the way first.
--
-- Text that comes from somebody's column brings the collation of that column along, while ours are compared by bytes. So each
-- routine that is called from outside gives its text on, and keeps it, with COLLATE "C"; what is called by it needs no more.

CREATE OR REPLACE FUNCTION jobs_now()
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT statement_timestamp() $$;

-- The version of the contract that these routines keep.
CREATE OR REPLACE FUNCTION jobs_contract()
RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT 1 $$;

-- The first 16 hexadecimal digits of a UUIDv7: 60 bits of time. Ids are put in order by it; nothing is decided by it.
CREATE OR REPLACE FUNCTION jobs__id_prefix()
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    ticks text := lpad(to_hex((extract(epoch FROM clock_timestamp()) * 4096000)::bigint), 15, '0');
BEGIN
    RETURN left(ticks, 12) || '7' || right(ticks, 3);
END
$$;

-- The nth id of those that share a prefix: they sort by n.
CREATE OR REPLACE FUNCTION jobs__id(prefix text, n bigint)
RETURNS uuid
LANGUAGE sql VOLATILE
AS $$ SELECT (prefix || to_hex(8388608 + n) || right(gen_random_uuid()::text, 10))::uuid $$;

CREATE OR REPLACE FUNCTION jobs__refuse(code text, message text, hint text)
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, HINT = hint;
END
$$;

CREATE OR REPLACE FUNCTION jobs__is_json(document text)
RETURNS boolean
LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
    RETURN document::json IS NOT NULL;
EXCEPTION
    WHEN invalid_text_representation OR statement_too_complex OR program_limit_exceeded THEN
        RETURN false;
END
$$;

-- The document with each escape that no text can hold replaced by `mark` and its four digits. A mark of '' says that
-- there are none; otherwise replace(…, mark, '\u') puts back what a slice of the body had.
CREATE OR REPLACE FUNCTION jobs__shield(document text, OUT body text, OUT mark text)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    secret  text;
BEGIN
    body := document;
    mark := '';
    IF document IS NULL OR strpos(document, '\u') = 0 OR document !~* '\\u(0000|d[89a-f])' THEN
        RETURN;
    END IF;

    -- Escaped backslashes and proper pairs are covered while the rest is marked. In JSON every backslash begins an
    -- escape, so that taking double ones from left to right never cuts one in two.
    secret := replace(gen_random_uuid()::text, '-', '');
    mark := secret || 'x';
    body := replace(body, '\\', secret || 'y');
    body := regexp_replace(body, '\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})', secret || 'z\1' || secret || 'z\2', 'gi');
    body := regexp_replace(body, '\\u(?=0000|d[89a-f][0-9a-f]{2})', mark, 'gi');
    body := replace(replace(body, secret || 'z', '\u'), secret || 'y', '\\');
    IF strpos(body, mark) = 0 THEN
        mark := '';
    END IF;
END
$$;

-- The members of an options object, in order: a null is NULL, anything else the JSON as it was written. A key given
-- twice is refused: readers of JSON do not agree on which of its values counts.
CREATE OR REPLACE FUNCTION jobs__members(document text, place text, known text[])
RETURNS TABLE (key text, value text)
LANGUAGE plpgsql STABLE STRICT
AS $$
DECLARE
    shielded  record;
    met       text[] := '{}';
BEGIN
    IF NOT jobs__is_json(document) OR json_typeof(document::json) <> 'object' THEN
        PERFORM jobs__refuse('PJ003', format('%s is not a JSON object', place), 'pass an object such as {} or {"key": "value"}');
    END IF;

    shielded := jobs__shield(document);
    FOR key, value IN
        SELECT m.key, nullif(replace(m.value::text, shielded.mark, '\u'), 'null')
          FROM json_each(shielded.body::json) AS m
    LOOP
        IF key <> ALL (known) THEN
            PERFORM jobs__refuse('PJ003', format('%s has no key %s', place, to_json(key)), 'the keys are ' || array_to_string(known, ', '));
        ELSIF key = ANY (met) THEN
            PERFORM jobs__refuse('PJ003', format('%s has the key %s twice', place, to_json(key)), 'give each key once');
        END IF;
        met := met || key;
        RETURN NEXT;
    END LOOP;
END
$$;

-- What follows reads one JSON value, named by its place in messages; NULL stays NULL.

CREATE OR REPLACE FUNCTION jobs__text(value text, place text)
RETURNS text
LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
    IF left(value, 1) <> '"' THEN
        PERFORM jobs__refuse('PJ003', format('%s is not a text', place), 'pass a JSON string');
    ELSIF strpos(value, '\u') > 0 AND (SELECT s.mark <> '' FROM jobs__shield(value) AS s) THEN
        PERFORM jobs__refuse('PJ003', format('%s holds a character that cannot be kept', place), 'leave out \u0000 and half surrogate pairs');
    END IF;
    RETURN value::json #>> '{}';
END
$$;

-- A name, queue, key, tenant or worker that is too long is refused, never cut.
CREATE OR REPLACE FUNCTION jobs__fit(value text, place text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
    IF length(value) NOT BETWEEN 1 AND 190 THEN
        PERFORM jobs__refuse('PJ010', format('%s has %s characters', place, length(value)), 'it must have 1 to 190');
    END IF;
    RETURN value;
END
$$;

CREATE OR REPLACE FUNCTION jobs__texts(value text, place text)
RETURNS text[]
LANGUAGE plpgsql STABLE STRICT
AS $$
BEGIN
    IF left(value, 1) <> '[' THEN
        PERFORM jobs__refuse('PJ003', format('%s is not a list', place), 'pass a JSON array of strings');
    END IF;
    IF strpos(value, '\u') > 0 OR EXISTS (SELECT FROM json_array_elements(value::json) AS e WHERE json_typeof(e.value) <> 'string') THEN
        RETURN ARRAY(
            SELECT jobs__text(e.value::text, format('%s[%s]', place, e.n - 1))
              FROM json_array_elements(value::json) WITH ORDINALITY AS e(value, n)
             ORDER BY e.n);
    END IF;
    RETURN ARRAY(SELECT e.value FROM json_array_elements_text(value::json) WITH ORDINALITY AS e(value, n) ORDER BY e.n);
END
$$;

CREATE OR REPLACE FUNCTION jobs__integer(value text, place text, lowest bigint, highest bigint)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
    IF value ~ '^-?\d{1,18}$' AND value::bigint BETWEEN lowest AND highest THEN
        RETURN value::bigint;
    END IF;
    PERFORM jobs__refuse('PJ003', format('%s is not a whole number from %s to %s', place, lowest, highest), 'pass a JSON number without a fraction');
END
$$;

-- A duration in milliseconds, at most some 317 years: a moment that far from now is still one that clients can read.
CREATE OR REPLACE FUNCTION jobs__duration(value text, place text, lowest bigint DEFAULT 0)
RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$ SELECT jobs__integer(value, place, lowest, 10000000000000) $$;

CREATE OR REPLACE FUNCTION jobs__number(value text, place text, lowest numeric, highest numeric)
RETURNS double precision
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
    IF value ~ '^-?\d{1,15}(\.\d{1,40})?([eE][-+]?\d{1,2})?$' AND value::numeric BETWEEN lowest AND highest THEN
        RETURN value::double precision;
    END IF;
    PERFORM jobs__refuse('PJ003', format('%s is not a number from %s to %s', place, lowest, highest), 'pass a JSON number');
END
$$;

CREATE OR REPLACE FUNCTION jobs__boolean(value text, place text)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
    IF value NOT IN ('true', 'false') THEN
        PERFORM jobs__refuse('PJ003', format('%s is neither true nor false', place), 'pass a JSON true or false');
    END IF;
    RETURN value::boolean;
END
$$;

CREATE OR REPLACE FUNCTION jobs__uuid(value text, place text)
RETURNS uuid
LANGUAGE plpgsql STABLE STRICT
AS $$
DECLARE
    written  text := jobs__text(value, place);
BEGIN
    IF written !~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN
        PERFORM jobs__refuse('PJ003', format('%s is %s, which is not a UUID', place, to_json(left(written, 40))), 'pass a UUID such as "01890a5d-ac96-774b-bcce-b302099a8057"');
    END IF;
    RETURN written::uuid;
END
$$;

-- An ISO 8601 moment with its offset, written in one way only, so that each dialect reads the same ones.
CREATE OR REPLACE FUNCTION jobs__moment(value text, place text)
RETURNS timestamptz
LANGUAGE plpgsql STABLE STRICT
AS $$
DECLARE
    written  text := jobs__text(value, place);
    moment   timestamptz;
BEGIN
    BEGIN
        IF written ~ '^\d{4}-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?(Z|[-+](0\d|1[0-5]):[0-5]\d)$' THEN
            moment := written::timestamptz;
        END IF;
    EXCEPTION
        WHEN datetime_field_overflow OR invalid_datetime_format OR invalid_time_zone_displacement_value THEN
            moment := NULL;
    END;
    -- A day to spare, so that the moment is within the years 1 to 9999 whatever offset it is shown with.
    IF moment IS NULL OR moment NOT BETWEEN '0001-01-02 00:00+00' AND '9999-12-30 00:00+00' THEN
        PERFORM jobs__refuse('PJ003', format('%s is %s, which is not a moment', place, to_json(left(written, 40))), 'pass ISO 8601 with an offset, such as "2026-01-31T09:00:00Z"');
    END IF;
    RETURN moment;
END
$$;

CREATE OR REPLACE FUNCTION jobs__object(value text, place text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
    IF left(value, 1) <> '{' THEN
        PERFORM jobs__refuse('PJ003', format('%s is not a JSON object', place), 'pass an object such as {}');
    END IF;
    RETURN value;
END
$$;

-- A setting; NULL where it says null.
CREATE OR REPLACE FUNCTION jobs__setting(name text)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
    RETURN (SELECT nullif(s.value, 'null') FROM jobs_settings s WHERE s.name = jobs__setting.name);
END
$$;

-- Wake the workers that listen. PostgreSQL sends one notification a transaction however often this is called in it.
CREATE OR REPLACE FUNCTION jobs__notify()
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('pyjobs', current_schema()) FROM jobs_settings s WHERE s.name = 'notify' AND s.value = 'true';
END
$$;
