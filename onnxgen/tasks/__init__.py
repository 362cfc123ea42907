"""The glue: a model folder, a task, and the parts that carry it out."""
