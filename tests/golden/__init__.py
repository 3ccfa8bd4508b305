"""What is decided and rendered today, so that a change that should alter nothing can show that it does not."""
