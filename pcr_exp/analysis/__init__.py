"""Tables, figures and reports from files of finished runs: one room per question, on one core."""
