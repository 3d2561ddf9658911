"""Read-only SQL for `query_database`: one source for SQLite, one for PostgreSQL, the same limits on both."""
