"""From one question and one video to one row."""
