"""The phases of a build, by topic, and what they share."""
