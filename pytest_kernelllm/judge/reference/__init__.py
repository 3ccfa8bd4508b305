"""What candidates are asked, and what is right. Only ever in the judge's process."""
