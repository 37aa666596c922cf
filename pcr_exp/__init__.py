"""How few bytes can training read and still reach its accuracy, and how much sooner?"""
