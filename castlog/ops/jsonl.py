"""castlog's own lines: one branch as JSON Lines, with what it takes to import it again with equal ids."""
