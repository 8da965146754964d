"""Wheels for all systems, made on Linux by a cross compiler."""
