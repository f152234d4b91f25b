"""The contenders. Each module gives `run(task) -> Timing`, called in a process of its own."""
