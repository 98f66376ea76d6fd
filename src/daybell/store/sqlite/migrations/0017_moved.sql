-- compatible
--
-- When a schedule's cursor was set. A time that has not come yet shows that the clock was set back since.

ALTER TABLE schedule ADD moved_at REAL;
