"""Where Brownout is on this machine, and how it is called there. Other rooms ask here; it imports none of them."""
