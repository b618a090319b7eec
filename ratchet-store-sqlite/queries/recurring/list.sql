SELECT v.* FROM ratchet.vw_jobs v WHERE v.rec_status IS NOT NULL ORDER BY v.business_key
