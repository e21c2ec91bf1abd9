"""The experiment: many trials asked for, and what they leave read. The only package that knows MLflow."""
