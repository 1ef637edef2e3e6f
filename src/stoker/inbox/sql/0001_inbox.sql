-- Stoker's inbox, format 1. A row that a transaction inserts here becomes a job once that transaction has committed.
--
-- Programs insert (queue, payload), and may add tenant and options: a JSON object with the fields of a job's options.
-- The other columns belong to the readers (stoker inbox run). To remove the inbox: DROP TABLE stoker_inbox.

CREATE TABLE stoker_inbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL DEFAULT 'default',
    queue text NOT NULL,
    payload bytea NOT NULL,
    options json NOT NULL DEFAULT '{}',
    added_at timestamptz NOT NULL DEFAULT now(),
    -- The request that pushes the row. The rows of a queue under one name never change.
    batch text,
    -- When the name was given: the queue remembers a request for a limited time.
    named_at timestamptz,
    -- When a reader last took the batch: after a minute another reader may send it again.
    taken_at timestamptz,
    -- Why the row was set aside. Readers leave it alone from then on.
    error text
) WITH (
    -- Rows live for a moment: without these, dead ones would pile up to a share of the whole table.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000
);

-- Rows that wait for a reader, in the order of their insertion.
CREATE INDEX stoker_inbox_free ON stoker_inbox (id) WHERE batch IS NULL AND error IS NULL;

-- Rows that a reader has named and not yet deleted.
CREATE INDEX stoker_inbox_named ON stoker_inbox (batch, taken_at) WHERE batch IS NOT NULL AND error IS NULL;

-- Rows that were set aside, for people.
CREATE INDEX stoker_inbox_refused ON stoker_inbox (id) WHERE error IS NOT NULL;

COMMENT ON TABLE stoker_inbox IS 'Stoker inbox, format 1';
