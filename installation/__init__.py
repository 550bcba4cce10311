"""Where Brownout is installed on this machine, and how to call it. Other rooms use it; it imports none of them."""
