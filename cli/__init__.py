"""The command line: arguments, output, exit codes, environment. It knows castlog by its public names only."""
