"""Random schemas, the instances that each allows, and the judge of a difference."""
