"""What is written of a selection and an answer: fields, identity, files."""
