-- compatible
--
-- Each tick writes the row of its schedule twice: when it fires, and when its execution ends. Half of each page is left
-- free for that, so that both versions stay on the page and the second write changes no index. Pages that are full get
-- the space as their rows move. Takes no lock against reads or writes.

ALTER TABLE daybell.schedule SET (fillfactor = 45);
