"""Write rows, added in any order, to one segment in bounded memory."""
