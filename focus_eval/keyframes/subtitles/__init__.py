"""Subtitles of videos: reads their files, and writes the lines of shown frames into prompts."""
