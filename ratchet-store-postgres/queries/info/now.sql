SELECT coalesce(:now::timestamptz, date_trunc('milliseconds', statement_timestamp())) AS now
