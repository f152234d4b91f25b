"""Built-in chat templates, written without Jinja."""
