"""Workloads: what is trained. Built inside a trial's process from plain values."""
