-- Whom a delivery goes to, so that hosts take turns. Deliveries from before share one line of their tenant.
ALTER TABLE delivery ADD COLUMN host TEXT NOT NULL DEFAULT '';
