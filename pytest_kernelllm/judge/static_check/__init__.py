"""What can be refused by reading a kernel module, before anything of it runs."""
