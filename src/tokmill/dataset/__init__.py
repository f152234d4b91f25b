"""The bytes on disk: layout, index, writer, records, reader, verify."""
