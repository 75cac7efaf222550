"""Measuring: clocks, the timed window and its stop rule, memory, the profiled window.

Nothing here decides what is good; that is `objective` and `statistics`.
"""
