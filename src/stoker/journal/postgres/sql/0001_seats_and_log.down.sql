-- Removes everything, the log included.

DO $$
DECLARE part record;
BEGIN
    FOR part IN SELECT seat, number FROM parts LOOP
        EXECUTE format('DROP TABLE IF EXISTS %I', 'log_' || part.seat || '_' || part.number);
    END LOOP;
END $$;

DROP TABLE log_model, parts, checkpoint_parts, checkpoints, heads, nodes, seats, cluster;
