-- Every change of a job's owner, status or fence, by the clock of the database, and the lease of the owner that it had.
CREATE TABLE torture_change (
    seq        bigint GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    job_id     uuid NOT NULL,
    old_status text,
    new_status text,
    old_owner  text,
    new_owner  text,
    old_fence  bigint,
    new_fence  bigint,
    old_lease  timestamptz,
    due        timestamptz
);
CREATE FUNCTION torture_note() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'UPDATE'
        AND (OLD.status, OLD.picked_by, OLD.version) IS NOT DISTINCT FROM (NEW.status, NEW.picked_by, NEW.version)
    THEN
        RETURN NULL;
    END IF;
    INSERT INTO torture_change (
        job_id, old_status, new_status, old_owner, new_owner, old_fence, new_fence, old_lease, due
    ) VALUES (
        coalesce(NEW.job_id, OLD.job_id), OLD.status, NEW.status, OLD.picked_by, NEW.picked_by, OLD.version, NEW.version,
        (SELECT n.lease_until FROM scheduler_node n WHERE n.node_id = OLD.picked_by), OLD.scheduled_time
    );
    RETURN NULL;
END
$$;
CREATE TRIGGER torture_note AFTER INSERT OR UPDATE OR DELETE ON scheduler_job_queue
    FOR EACH ROW EXECUTE FUNCTION torture_note();
