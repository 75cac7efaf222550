"""The search: which settings may be tried, who proposes them, and what is known of them."""
