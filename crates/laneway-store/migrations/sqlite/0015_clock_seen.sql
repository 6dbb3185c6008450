-- The time up to which retention has counted: a clock that jumps while no process runs must delete nothing at the start.
ALTER TABLE head ADD COLUMN clock_seen INTEGER;
