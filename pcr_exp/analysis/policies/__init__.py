"""What a policy chose, when and why."""
