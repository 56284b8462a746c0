"""What runs in processes of their own. Those that stand for a cold start import nothing of the benchmarks."""
