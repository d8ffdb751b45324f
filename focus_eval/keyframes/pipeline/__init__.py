"""Selection of keyframes: from one question and one video to one row."""
