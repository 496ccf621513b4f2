"""What an operator looks at: a module for each thing that there is to see."""
