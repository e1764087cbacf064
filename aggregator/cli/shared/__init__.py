"""What several verbs need: a catalog or a server opened, answers printed."""
