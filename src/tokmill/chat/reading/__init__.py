"""Records to conversations: schemas, names of fields, messages, tools."""
