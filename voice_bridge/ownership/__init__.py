"""Who may dial an endpoint."""
