"""The engine, which translates on CPUs: engine.c and its two headers, and their binding."""
