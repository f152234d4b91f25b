"""What a run finds on this machine: packages, engines, cores, memory, disks, GPUs."""
