"""The judge: decides about candidates, and keeps them at arm's length while it does."""
