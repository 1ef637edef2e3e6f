-- The seats of a cluster, and the log of their shards.
-- Partitions of the log are tables of their own, made by the owner of a seat: log_SEAT_NUMBER, one row of `parts` each.
-- Dropping such a table locks nothing else.

-- One row: what this database holds.
CREATE TABLE cluster (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format integer NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    shards integer NOT NULL CHECK (shards BETWEEN 1 AND 64 AND shards & (shards - 1) = 0),
    seats integer NOT NULL CHECK (seats BETWEEN 1 AND shards),
    installed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- the nodes prove to each other that they know it
    secret bytea NOT NULL DEFAULT decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex')
);

-- Who serves the shards of a seat. The lease ends at `until`, by the clock of PostgreSQL.
CREATE TABLE seats (
    seat integer PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    node text NOT NULL DEFAULT '',
    address text NOT NULL DEFAULT '',
    until timestamptz NOT NULL DEFAULT to_timestamp(0),
    in_order boolean NOT NULL DEFAULT true  -- whether the last owner handed it over in good order
) WITH (fillfactor = 50);

-- The nodes that have been heard of. A name belongs to one run at a time.
CREATE TABLE nodes (
    node text PRIMARY KEY,
    run uuid NOT NULL,
    address text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- The fence: the last record of each shard, and the owner that wrote it. An append compares and sets it.
CREATE TABLE heads (
    shard integer PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    last bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- One row a seat: the checkpoint in force (0 = none), and the owner that may change it.
CREATE TABLE checkpoints (
    seat integer PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    number bigint NOT NULL DEFAULT 0,
    position bigint[] NOT NULL,  -- how far it reaches in each shard of the cluster
    lowest bigint[] NOT NULL,    -- the first record of each shard that readers of events can still read
    made bigint NOT NULL DEFAULT 0  -- the last number given to a partition or a checkpoint
);

-- The bytes of checkpoints, in pieces of 1 MiB.
CREATE TABLE checkpoint_parts (
    seat integer NOT NULL,
    number bigint NOT NULL,
    place integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (seat, number, place)
);
ALTER TABLE checkpoint_parts ALTER data SET STORAGE EXTERNAL;  -- compressing it costs more than it saves

-- The partitions of the log, in the order of their `place`.
CREATE TABLE parts (
    seat integer NOT NULL,
    number bigint NOT NULL,     -- its table is log_SEAT_NUMBER
    place bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('open', 'full', 'sparse')),
    last bigint[] NOT NULL DEFAULT '{}',  -- the last record of each shard at its end; empty while it is written to
    ended_at bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (seat, number)
);

-- What every partition of the log looks like.
CREATE TABLE log_model (
    shard integer NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    epoch bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (shard, first)
);
ALTER TABLE log_model ALTER data SET STORAGE EXTERNAL;
