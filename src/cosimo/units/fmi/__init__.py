"""FMUs: archives, descriptions, variables, components, instances, processes of their own."""
