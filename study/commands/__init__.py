"""One command per file; each imports heavy libraries only when it runs."""
