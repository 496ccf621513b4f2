"""A fleet whose workers are pods of a release of the chart: started, watched and given back."""
