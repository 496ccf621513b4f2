"""What an answer must be: grammars, and which tokens they let come."""
