"""What is asked: checked questions, and filters as bounds on columns."""
