SELECT e.parent_id, e.child_id, e.condition_type, c.expression, e.priority, e.state
FROM ratchet.scheduler_job_edge e
LEFT JOIN ratchet.scheduler_workflow_condition c ON c.parent_id = e.parent_id AND c.child_id = e.child_id
WHERE e.child_id IN (SELECT unhex(g.value) FROM json_each(:children) g)
ORDER BY e.edge_no
