-- Every change of a job's owner, status or fence, by the clock of the machine, and the lease of the owner that it had.
CREATE TABLE torture_change (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
    job_id     BLOB NOT NULL,
    old_status TEXT,
    new_status TEXT,
    old_owner  TEXT,
    new_owner  TEXT,
    old_fence  INTEGER,
    new_fence  INTEGER,
    old_lease  INTEGER,
    due        INTEGER
) STRICT;
CREATE TRIGGER torture_insert AFTER INSERT ON scheduler_job_queue BEGIN
    INSERT INTO torture_change (job_id, new_status, new_owner, new_fence)
    VALUES (NEW.job_id, NEW.status, NEW.picked_by, NEW.version);
END;
CREATE TRIGGER torture_update AFTER UPDATE ON scheduler_job_queue
WHEN OLD.status <> NEW.status OR OLD.picked_by IS NOT NEW.picked_by OR OLD.version <> NEW.version BEGIN
    INSERT INTO torture_change (
        job_id, old_status, new_status, old_owner, new_owner, old_fence, new_fence, old_lease, due
    ) VALUES (
        NEW.job_id, OLD.status, NEW.status, OLD.picked_by, NEW.picked_by, OLD.version, NEW.version,
        (SELECT n.lease_until FROM scheduler_node n WHERE n.node_id = OLD.picked_by), OLD.scheduled_time
    );
END;
CREATE TRIGGER torture_delete AFTER DELETE ON scheduler_job_queue BEGIN
    INSERT INTO torture_change (job_id, old_status, old_owner, old_fence, old_lease)
    VALUES (
        OLD.job_id, OLD.status, OLD.picked_by, OLD.version,
        (SELECT n.lease_until FROM scheduler_node n WHERE n.node_id = OLD.picked_by)
    );
END;
